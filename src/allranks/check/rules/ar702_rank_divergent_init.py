"""AR702: the parameters begin differently on every process."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.knowledge.tables import load
from allranks.check.rule import LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.origins import RANK_KINDS, latest, origins, values
from allranks.check.tree.syntax import (
    arguments,
    calls_of,
    distributed,
    function_of,
    keyword,
    name_of,
    own,
    rank_guard,
    tail_of,
)
from allranks.findings import Finding, Note

_CHANCE = frozenset({"clock", "random", "identity"})
_INITIALIZERS = ("init", "init_with_output", "lazy_init")
_COPIES = (
    *("deepcopy", "ModelEma", "ModelEmaV2", "ModelEmaV3", "ModelEMA", "EMAModel", "EMA", "Ema"),
    *("ExponentialMovingAverage", "AveragedModel"),
)
_WRAPS = ("DistributedDataParallel", "DDP")
_OF_COPY = (
    "The averages of the ranks begin with different values; a validation with them scores no single model.",
    "Take the copy after the wrapper (of `model.module`), or make the model under one seed on all ranks.",
)


class RankDivergentInit(LocalRule):
    """
    ## What it does
    Finds models whose parameters differ by process:

    - a JAX key from a clock, a random number or the process id; a key that depends on the rank and initialises
      parameters
    - a copy or average of the model from before DDP wraps it, under a seed that depends on the rank

    ## Why is this bad
    All processes must begin with the same parameters. Averaged gradients never remove a difference.

    ## What happens with N processes
    N different models are trained with averaged gradients, and no assertion sees it: JAX's check of replicated arrays
    passes. Rank 0's model is saved.

    ## Known problems
    `DistributedDataParallel` broadcasts the parameters of rank 0, so torch code that wraps with it is not reported.

    ## Use instead
    One seed for the parameters of all processes; `jax.random.fold_in(key, jax.process_index())` only for keys of data
    and dropout.
    """

    code, name, severity, row = "AR702", "rank-divergent-init", "error", "randomness"
    cluster = "Every process begins with different parameters; averaging gradients never makes them equal."
    advice = "Give all processes the same seed for the parameters, or broadcast them once before the first step."
    words = ("PRNGKey", "random.key", "DistributedDataParallel", "DDP")
    nodes = (ast.Call,)
    calls = (*load().signs["random_keys"], *_INITIALIZERS, *_COPIES)
    bad = (
        """\
import time
import jax

jax.distributed.initialize()
key = jax.random.PRNGKey(int(time.time()))  # <-- found
""",
        """\
import copy
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(Model):
    dist.init_process_group("nccl")
    torch.manual_seed(1 + dist.get_rank())
    model = Model()
    ema = copy.deepcopy(model)  # <-- found
    model = DistributedDataParallel(model)
""",
    )
    good = (
        """\
import jax

jax.distributed.initialize()
key = jax.random.PRNGKey(0)
dropout = jax.random.fold_in(key, jax.process_index())
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test and distributed(file)

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or rank_guard(node, file) is not None:
            return
        name, last = name_of(node, file), tail_of(node)
        if last in _COPIES and (wraps := _copied_early(node, file)) is not None:
            notes = [Note("the ranks' models are made equal here", file.place(wraps))]
            what = "each rank copies a different model: DDP makes them equal only afterwards"
            place, symbol = file.place(node), file.symbol(node)
            cluster, advice = _OF_COPY
            yield self.finding(place, symbol, what, severity="warning", cluster=cluster, advice=advice, notes=notes)
        elif name in load().signs["random_keys"]:
            sent = any("broadcast" in ast.unparse(at) for at in file.parents(node) if isinstance(at, ast.expr))
            if (
                node.args
                and any(origins(one, file) & _CHANCE for one in latest(node.args[0], file) or node.args[:1])
                and not sent
                and not file.says("broadcast_one_to_all")
            ):
                yield self.local(file, node, "this key is made of something that differs from process to process")
        elif last in _INITIALIZERS and isinstance(node.func, ast.Attribute) and file.says("jax"):
            key = node.args[0] if node.args else keyword(node, "rngs")
            named = key is not None and any(word in ast.unparse(key) for word in ("key", "rng", "PRNG"))
            if named and origins(key, file) & RANK_KINDS:
                yield self.local(file, node, "parameters are initialised with a key that depends on the rank")


def _copied_early(call: ast.Call, file: File) -> ast.Call | None:
    """Return what wraps the model behind the copy that ``call`` takes of it, where each rank seeds its own."""
    scope = function_of(call, file)
    if scope is None or not call.args:
        return None
    first = call.args[0]
    copied = {ast.unparse(one) for one in (first, *(first.args if isinstance(first, ast.Call) else ()))}
    calls = [at for at in own(scope) if isinstance(at, ast.Call)]
    wraps = (at for at in calls if tail_of(at) in _WRAPS and at.args and ast.unparse(at.args[0]) in copied)
    found = next((at for at in wraps if at.lineno > call.lineno), None)
    read = any("pretrained" in ast.unparse(one) or ".load" in ast.unparse(one) for one in values(first, file))
    if found is None or read or any(tail_of(at) == "load_state_dict" for at in calls if at.lineno < call.lineno):
        return None
    later = (at for at in calls if at.lineno > call.lineno)
    if any(
        "broadcast" in tail_of(at) or (tail_of(at) == "load_state_dict" and "ema" in ast.unparse(at.func))
        for at in later
    ):
        return None
    above = [at for at in calls if "seed" in tail_of(at) and at.lineno < call.lineno]
    seeds = above[-1:] or [at for word, every in calls_of(file).items() if "seed" in word for at in every]
    return found if any(origins(one, file) & RANK_KINDS for at in seeds for one in arguments(at)) else None
