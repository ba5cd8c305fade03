"""AR501: one rank loads, the others keep what they were made with."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.program import Event, Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import latest
from allranks.check.tree.syntax import asks_rank, distributed, function_of, inside, own, places_in, rank_guard, tail_of
from allranks.findings import Finding

# The model was made alike on all ranks before the load...
_WRAPS = ("construction", "prepare", "deepspeed.initialize", "broadcast_parameters")
# ...and what makes the ranks alike again, if it comes after the load.
_RESTORES = re.compile(
    r"restore|^load_(checkpoint|ckpt|params|weights|state|pytree|train_state)|^from_(bytes|state_dict)$"
)
_SENDS = re.compile(r"broadcast|bcast|allgather|all_gather|sync_(state|params)|assert_equal")
_SHARES = ("broadcast", "construction", "prepare", "initialize", "scatter", "state_dict", "all_gather", "setup")
# What trains, if it comes later; and what is trained, as people call it: not what only rank 0 has, nor at the end.
_TRAINS = ("forward", "backward", "allreduce")
_TRAINED = re.compile(
    r"(?i)(^|[._])(model|net|network|module|policy|actor|critic|encoder|decoder|raw|optim\w*|opt)\d?(\[.*\])?$"
)
_OPTIMIZER = re.compile(r"(?i)(^|[._])opt(im\w*)?\d?(\[.*\])?$")
_BESIDE = re.compile(r"(?i)ema|averag|teacher|swa|target|best|eval|fid|inception|metric|shadow|frozen|ref(erence)?_")
_AT_THE_END = re.compile(r"(?i)test|eval|infer|predict|sampl|export|convert|final|best")


_OF_JAX = "Restore on every process, or send what process 0 has restored to the others (broadcast_one_to_all)."


class LoadOnOneRank(LocalRule, ProgramRule):
    """
    ## What it does
    Finds a `load_state_dict` that only rank 0 reaches, after the model was wrapped, if nothing after it sends the
    weights to the others: no wrapping in DDP or FSDP, no broadcast. With JAX: a state that is restored behind a rank
    guard and then used by all, without a broadcast of it.

    ## Why is this bad
    The wrapper copies rank 0's parameters once, when it is made. What is loaded later stays on rank 0.

    ## What happens with N processes
    Rank 0 continues with the checkpoint, the others with fresh weights. Gradients are averaged over different models,
    and the loss only looks bad.

    ## Known problems
    A function of the project that sends parameters without a known collective is not recognised. A model that is built
    to be saved, not trained, is reported, too. With torch, confidence is low unless the loaded object has a name like
    `model`, `net` or `optimizer`, and training comes after it.

    ## Use instead
    Load on every rank, or load on rank 0 before the model is wrapped. With JAX: restore on every process, or
    `multihost_utils.broadcast_one_to_all(state)`.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR501", "load-on-one-rank", "error", "checkpoint load"
    cluster = "Rank 0 continues with the checkpoint and the others with fresh weights."
    advice = "Load on every rank, or on rank 0 before the wrapper (DDP, FSDP with sync_module_states) is made."
    words = ("restore", "load", "from_bytes", "from_state_dict")
    nodes = (ast.Assign,)
    bad = (
        Example(
            {
                "train.py": """\
import jax
from flax import jax_utils
from flax.training import checkpoints


def main(state, folder, batches, step):
    if jax.process_index() == 0:
        state = checkpoints.restore_checkpoint(folder, state)
    state = jax_utils.replicate(state)
    for batch in batches:
        state = step(state, batch)


class Learner:
    def __init__(self, params, path, rank):
        self.params = params
        there = rank == 0 and path.exists()
        if there:
            self.params, self.epoch = load_params(path, self.params), 1

    def update(self, batch):
        self.params = self.step(self.params, batch)


def resumed(state, folder, is_primary):
    restored = restore(folder) if is_primary else state
    return jax.device_put(restored)
"""
            },
            at=(8, 19, 26),
        ),
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(path):
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(2, 2))
    if dist.get_rank() == 0:
        model.module.load_state_dict(torch.load(path))
"""
            },
            at=(9,),
        ),
        # DDP shares the weights, and not the optimizer's state.
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(path, batches):
    dist.init_process_group("nccl")
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(net.parameters())
    if dist.get_rank() == 0:
        state = torch.load(path)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
    model = DDP(net)
    for batch in batches:
        model(batch).sum().backward()
        optimizer.step()
"""
            },
            at=(12,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import jax
from flax.training import checkpoints
from jax.experimental import multihost_utils


def main(state, folder, step, batch):
    if jax.process_index() == 0:
        state = checkpoints.restore_checkpoint(folder, state)
    state = multihost_utils.broadcast_one_to_all(state)
    step(state, batch)


def export(state, folder):
    if jax.process_index() == 0:
        state = checkpoints.restore_checkpoint(folder, state)
        write(state)
    if jax.process_index() == 0:
        print(state)


def shared(state, folder, step):
    if jax.process_index() != 0:
        found = None
    else:
        state = checkpoints.restore_checkpoint(folder, state)
    there = multihost_utils.broadcast_one_to_all(jax.process_index() == 0)
    if there:
        state = checkpoints.restore_checkpoint(folder, state)
    return step(state)
"""
            }
        ),
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(path):
    dist.init_process_group("nccl")
    model = torch.nn.Linear(2, 2)
    if dist.get_rank() == 0:
        restore(model, path)
    model = DDP(model)

def restore(model, path):
    model.load_state_dict(torch.load(path))

def resume(model, optimizer, path):
    optimizer.load_state_dict(torch.load(path))
"""
            }
        ),
    )

    def applies(self, file: File) -> bool:
        return not file.is_test and "jax" in file.text and distributed(file)

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.Assign):
            names = _alone(node, file)
            if names and _used_by_all(names, node, file):
                yield self.local(
                    file,
                    node,
                    f"{names[0]} is restored on one process only, and never sent to the others",
                    advice=_OF_JAX,
                )

    def check(self, program: Program) -> Iterator[Finding]:
        for event in program.effects("restore"):
            alone = event.roles == {"first"} and event.may == {"first"}
            wrapped = any(word in op for op in event.earlier for word in _WRAPS)
            trained = _is_trained(event)
            steps = trained and _OPTIMIZER.search(event.target)
            if not event.active or not alone or not (wrapped or steps):
                continue
            # A gather is of scores where it trains; a wrapper shares weights, and no state of an optimizer: nor does,
            # as a rule, a broadcast of tensors.
            unsent = {"all_gather"} if trained else set[str]()
            unsent |= {"construction"} if steps else set()
            later = [op for op in event.later if not (steps and op == "broadcast")]
            if not any(word in op for op in later for word in _SHARES if word not in unsent):
                loaded = event.target or f"what {event.told} reads"
                found = self.found(event, f"{loaded} is loaded on rank 0 only, and never sent to the others")
                yield found if trained and "broadcast" not in event.later else replace(found, confidence="low")


def _is_trained(event: Event) -> bool:
    """What is loaded is, by its name, what is trained afterwards: not at the end, for a last look by rank 0."""
    named = _TRAINED.search(event.target) and not _BESIDE.search(event.target)
    later = any(word in op for op in event.later for word in _TRAINS)
    ways = (event.symbol.rpartition(".")[2], *(step.symbol.rpartition(".")[2] for step in event.chain))
    return bool(named) and later and not event.looped and not any(map(_AT_THE_END.search, ways))


def _alone(stored: ast.Assign, file: File) -> list[str]:
    """Return under what names one process alone stores what it restores."""
    names = [ast.unparse(at) for target in stored.targets for at in _parts(target)]
    value, guard = stored.value, next((p for p, _ in inside(stored, file) if isinstance(p, ast.If)), None)
    if isinstance(value, ast.IfExp) and _restores(value.body) and not _restores(value.orelse):
        return names if _is_first(value.test, file) else []
    if guard is None or not _restores(value) or not _is_first(guard.test, file):
        return []
    inside_it = [at for part in guard.body for at in walk(part)]
    others = [] if guard.orelse and isinstance(guard.orelse[0], ast.If) else guard.orelse
    if stored not in inside_it or any(_stores_restored(part) for part in others):
        return []
    for at in inside_it:  # what is made of it goes on, too
        if isinstance(at, ast.Assign) and at.lineno > stored.lineno and places_in(at.value) & set(names):
            names += [ast.unparse(part) for target in at.targets for part in _parts(target)]
    return names


def _stores_restored(statement: ast.stmt) -> bool:
    return any(isinstance(at, ast.Assign) and _restores(at.value) for at in walk(statement))


def _parts(target: ast.expr) -> list[ast.expr]:
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return [part for part in parts if isinstance(part, ast.Name | ast.Attribute)]


def _restores(value: ast.expr) -> bool:
    return any(isinstance(at, ast.Call) and _RESTORES.search(tail_of(at)) for at in walk(value))


def _is_first(test: ast.expr, file: File) -> bool:
    """A condition that holds on one process: ``rank == 0``, a name for it, and what else must hold too."""
    if isinstance(test, ast.BoolOp):
        return isinstance(test.op, ast.And) and any(_is_first(value, file) for value in test.values)
    if isinstance(test, ast.Compare):
        first = isinstance(test.ops[0], ast.Eq) and isinstance(test.comparators[0], ast.Constant)
        return first and test.comparators[0].value == 0 and asks_rank(test.left)  # type: ignore[attr-defined]
    if isinstance(test, ast.Name) and (stored := latest(test, file)):
        return len(stored) == 1 and isinstance(stored[0], ast.BoolOp | ast.Compare) and _is_first(stored[0], file)
    return isinstance(test, ast.Name | ast.Attribute) and asks_rank(test)


def _used_by_all(names: list[str], stored: ast.Assign, file: File) -> bool:
    """All processes go on with one of ``names``, and nothing sends it to them."""
    function = function_of(stored, file)
    if function is None or rank_guard(_outermost(stored, file), file) is not None:
        return False
    later = [at for at in own(function) if getattr(at, "lineno", 0) > (stored.end_lineno or 0)]
    if any(isinstance(at, ast.Call) and _SENDS.search(tail_of(at)) for at in later):
        return False
    if any(name.startswith("self.") for name in names):
        return True
    reads = (at for at in later if isinstance(at, ast.Name | ast.Attribute) and isinstance(at.ctx, ast.Load))
    return any(ast.unparse(at) in names and not _guarded(at, stored, file) for at in reads)


def _outermost(stored: ast.Assign, file: File) -> ast.AST:
    """Return the statement that holds the guard of ``stored``, or itself."""
    return next((p for p, _ in inside(stored, file) if isinstance(p, ast.If)), stored)


def _guarded(at: ast.AST, stored: ast.Assign, file: File) -> bool:
    """One process alone comes by ``at``, or it stands under the same condition as ``stored``."""
    return rank_guard(at, file) is not None or _outermost(stored, file) in file.parents(at)
