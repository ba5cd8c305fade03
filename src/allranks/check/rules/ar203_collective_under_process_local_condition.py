"""AR203: each process decides alone whether to call a collective."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.survey.found_alike import is_settled
from allranks.check.tree.own_logs import logged_by_data
from allranks.check.tree.own_losses import meets_by_loss
from allranks.check.tree.own_scores import meets_by_score
from allranks.check.tree.reduced_later import leaves_before, meets_if_any
from allranks.check.tree.sent_later import leaves_with_nothing
from allranks.check.tree.syntax import fails, function_of, leaves, tail_of
from allranks.findings import Finding, Note

_MEETS = re.compile(r"all_?gather|^gather(_object|_for_metrics)?$|all_?reduce|pad_across_processes|process_allgather")


class CollectiveUnderProcessLocalCondition(LocalRule, ProgramRule):
    """
    ## What it does
    Finds a collective that depends on what one process finds by itself:

    - whether a file exists, a clock, a signal, whether background work has ended
    - whether a mask leaves any of this process' data, or it has any of the objects or gradients that all are about to
      send
    - the score of this process' part of the data, or the loss of its batch
    - whether a number is zero that is to be reduced over all processes

    Lightning's `self.log(..., sync_dist=True)` is a collective, also if a mask of this batch decides what is logged.

    ## Why is this bad
    Processes may find different things: a file does not exist yet on another host, a clock is late.

    ## What happens with N processes
    Some processes call the collective and others do not. They wait until a timeout, or are in different collectives.

    ## Known problems
    On an idle shared file system all processes find the same. Confidence is low if nothing in the function writes,
    makes or deletes files before the collective, or if a collective is between that and the test. It is low, too, if
    the processes that found it make other things, and those that did not leave.

    The choice of the checkpoint from which a job resumes counts as equal on all ranks (AR503 checks it).

    ## Use instead
    Decide on rank 0 and broadcast the decision.

    ## Fix safety
    There is no automatic fix: only the author knows which side is right.
    """

    code, name, severity, row = "AR203", "collective-under-process-local-condition", "error", "collectives"
    cluster = "Processes that find different things call different collectives: a hang, or wrong numbers."
    advice = "Decide on rank 0 and broadcast the decision before any rank acts on it."
    bad = (
        Example(
            {
                "train.py": """\
import os
import torch.distributed as dist

dist.init_process_group("nccl")
if os.path.exists("ready"):
    dist.barrier()
""",
            },
            at=(6,),
        ),
        Example(
            {
                "trainer.py": """\
class Trainer:
    def threshold(self, entropies, mask):
        picked = entropies[mask.bool()]
        if picked.numel() == 0:
            return 0.0
        return self.accelerator.gather(picked).mean()
""",
            },
            at=(4,),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist

class Saver:
    def settle(self):
        if self.future is not None and self.future.done():
            dist.barrier()
""",
            },
            at=(6,),
        ),
        Example(
            {
                "train.py": """\
from accelerate import Accelerator

def score(model, batches):
    return sum(model(batch) for batch in batches) / len(batches)

def fit(model, batches, val_batches, optimizer):
    accelerator = Accelerator()
    model, optimizer, batches, val_batches = accelerator.prepare(model, optimizer, batches, val_batches)
    best = 0.0
    for epoch in range(10):
        train_epoch(model, batches, optimizer)
        accuracy = score(model, val_batches)
        if accuracy > best:
            best = accuracy
            accelerator.save_state("best")
""",
            },
            at=(15,),
        ),
        Example(
            {
                "loss.py": """\
import torch.distributed as dist

def mean_loss(losses, mask):
    count = mask.sum()
    if count == 0:
        return 0.0
    dist.all_reduce(count)
    return losses.sum() / count
""",
            },
            at=(5,),
        ),
        Example(
            {
                "send.py": """\
import torch.distributed as dist

class Tracer:
    def finish(self):
        if not self.on or not self.events:
            print("nothing to send")
            return
        every = [None] * dist.get_world_size()
        rows = [event.row() for event in self.events]
        dist.all_gather_object(every, rows)

def norm(grads, group):
    if len(grads) == 0:
        return 0.0
    norms = [grad.norm() for grad in grads]
    total = sum(norms)
    dist.all_reduce(total, group=group)
    return total

def collect(results):
    if not results:
        return []
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, results)
    return every
""",
            },
            at=(5, 13, 21),
        ),
        Example(
            {
                "module.py": """\
import lightning as L

class Net(L.LightningModule):
    def training_step(self, batch, index):
        losses, masks = self(batch), {"a": batch.kind == 0, "b": batch.kind == 1}
        of_kinds = {name: losses[mask].mean() for name, mask in masks.items() if mask.any()}
        self.log_dict({"loss": losses.mean(), **of_kinds}, sync_dist=True)
        if (batch.weight > 0).sum() > 0:
            self.log("weight", batch.weight.mean(), sync_dist=True)
""",
            },
            at=(7, 9),
        ),
    )
    good = (
        Example(
            {
                "module.py": """\
import lightning as L

class Net(L.LightningModule):
    def training_step(self, batch, index):
        losses, mask = self(batch), batch.kind == 0
        if mask.any():
            self.log("a", losses[mask].mean())
        if self.weights.any() and index % 10 == 0:
            self.log("loss", losses.mean(), sync_dist=True)
""",
            },
        ),
        Example(
            {
                "loss.py": """\
import torch.distributed as dist

def mean_loss(losses, mask, level):
    count = mask.sum()
    dist.all_reduce(count)
    if count == 0:
        return 0.0
    if level == 0:
        return count
    dist.all_reduce(losses)
    return losses.sum() / count
""",
            },
        ),
        Example(
            {
                "send.py": """\
import torch.distributed as dist

def share(rows, goes_on, tensors):
    dist.all_reduce(count(rows))
    every = [None] * dist.get_world_size()
    if not goes_on:
        return None
    if not tensors:
        return every
    for row in rows:
        print(row)
    result = work(rows, goes_on, [name for name, _ in tensors])
    dist.all_gather_object(every, result)
    return every
""",
            },
        ),
        Example(
            {
                "trainer.py": """\
import os
import torch.distributed as dist

class Trainer:
    def threshold(self, entropies, mask, grads):
        if len(grads) == 0:
            return None
        picked = self.accelerator.gather(entropies)[mask.bool()]
        if picked.numel() == 0:
            return 0.0
        return self.accelerator.gather(picked).mean()

    def resume(self, folder):
        path = newest(folder)
        if path is not None:
            dist.barrier()

def newest(folder):
    names = sorted(os.listdir(folder))
    return os.path.join(folder, names[-1]) if names else None
""",
            },
        ),
        Example(
            {
                "train.py": """\
import os
import torch.distributed as dist

dist.init_process_group("nccl")
if os.path.exists("ready"):
    print("ready")
dist.barrier()
""",
            },
        ),
    )

    words = (
        "gather",
        "reduce",
        "pad_across_processes",
        "barrier",
        "wait_for_everyone",
        "save_state",
        "save_checkpoint",
        "sync_dist",
        "fabric.save",
        "async_save",
        "mngr.save",
        "manager.save",
    )
    nodes = (ast.If, ast.Call)
    calls = ("log", "log_dict")

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.Call):
            if not file.is_test and (test := logged_by_data(node, file)) is not None:
                yield self.local(
                    file, node, f"what is reduced as it is logged depends on this batch: {ast.unparse(test)}"
                )
            return
        assert isinstance(node, ast.If)
        if not file.is_test and not leaves(node.body) and (found := meets_by_score(node, file)) is not None:
            call, decided = found
            says = f"{ast.unparse(call.func)} depends on {decided.score}, the score of this process' part of the data"
            made = self.local(file, call, says)
            yield made if decided.certain else replace(made, confidence="low")
        if not file.is_test and (told := meets_by_loss(node, file)) is not None:
            call, name = told
            yield self.local(file, call, f"{ast.unparse(call.func)} depends on {name}, the loss of this process' batch")
        if not file.is_test and (sent := meets_if_any(node, file)) is not None:
            call, name = sent
            yield self.local(
                file, call, f"{ast.unparse(call.func)} depends on {name}, of which a process may have nothing"
            )
        if not file.is_test and not fails(node.body) and (name := leaves_before(node, file)):
            yield self.local(
                file,
                node.test,
                f"a process leaves because of its own {name}, and the others reduce it",
            )
        if not file.is_test and (name := leaves_with_nothing(node, file)):
            says = f"a process leaves if it has no {name}, and the others send theirs"
            yield replace(self.local(file, node.test, says), notes=(Note("it leaves here", file.place(node.body[-1])),))
        name, function = _empty(node.test), function_of(node, file)
        if not name or function is None or file.is_test or not leaves(node.body):
            return
        ends = node.end_lineno or node.lineno
        if _picked(function, name, node.lineno) and any(_sends(part, name, ends) for part in walk(function)):
            yield self.local(
                file, node.test, f"a process leaves when its own {name} is empty, and the others make a collective"
            )

    def check(self, program: Program) -> Iterator[Finding]:
        for parting in program.divergences():
            if parting.cause == "process":
                says = f"{parting.named} depends on what only this process finds: {parting.condition}"
                found = self.found(parting, says, notes=parting.sides())
                yield replace(found, confidence="low") if is_settled(parting, program) else found


def _empty(test: ast.expr) -> str:
    """Return the name of what a condition finds empty."""
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)):
        return ""
    counted, none = test.left, test.comparators[0]
    if not (isinstance(none, ast.Constant) and none.value == 0 and isinstance(counted, ast.Call)):
        return ""
    what = counted.args[0] if tail_of(counted) == "len" and counted.args else None
    if tail_of(counted) == "numel" and isinstance(counted.func, ast.Attribute):
        what = counted.func.value
    return what.id if isinstance(what, ast.Name) else ""


def _picked(function: ast.AST, name: str, before: int) -> bool:
    """Whether ``name`` is what a mask, or a condition, left of this process' data."""
    return any(
        isinstance(part, ast.Assign)
        and part.lineno < before
        and any(isinstance(target, ast.Name) and target.id == name for target in part.targets)
        and _picks(part.value)
        for part in walk(function)
    )


def _picks(value: ast.expr) -> bool:
    parts = list(walk(value))
    if any(isinstance(part, ast.Call) and _MEETS.search(tail_of(part)) for part in parts):
        return False
    masks = (part.slice for part in parts if isinstance(part, ast.Subscript))
    by_mask = any("mask" in ast.unparse(mask) or isinstance(mask, ast.Compare) for mask in masks)
    return by_mask or (isinstance(value, ast.ListComp) and any(loop.ifs for loop in value.generators))


def _sends(part: ast.AST, name: str, after: int) -> bool:
    """Whether it is a collective behind line ``after`` that is given what bears ``name``."""
    if not (isinstance(part, ast.Call) and part.lineno > after and _MEETS.search(tail_of(part))):
        return False
    return any(isinstance(n, ast.Name) and name in n.id for argument in part.args for n in walk(argument))
