"""AR310: each process decides by the score of its own part of the validation data."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule
from allranks.check.sources.source import File
from allranks.check.survey.on_one_device import on_one_device
from allranks.check.tree import reducing as told
from allranks.check.tree.metric_classes import left_apart
from allranks.check.tree.one_device import taken_for_all
from allranks.check.tree.own_counts import counts_alone
from allranks.check.tree.own_means import given_away, own_mean
from allranks.check.tree.own_rates import steers_rate
from allranks.check.tree.own_scores import follows_own_score
from allranks.check.tree.syntax import calls_of, distributed, tail_of
from allranks.check.tree.thrown_away import IN_PLACE, RETURNING, thrown_away
from allranks.check.tree.unaveraged_fits import is_unaveraged
from allranks.check.tree.unsynced_logs import unsynced
from allranks.findings import Finding, Note

_REDUCTIONS = (*IN_PLACE, *RETURNING)
_LOST = "is reduced, and no variable keeps the result"


class MetricNotReduced(LocalRule):
    """
    ## What it does
    Finds a score of a part of the data that is used as the score of all of it. In a function that reads sharded
    held-out data and averages what it has added up or collected, without combining the results of the processes:

    - a mean of sums or lists; of two such numbers, the one that is not reduced while the other is
    - an object that collects predictions and returns a score
    - a metric of torcheval that is never synced; a score that a function under `pmap` returns unreduced
    - a metric class of torchmetrics, mmengine or detectron2 that adds up in an attribute unknown to its framework (no
      `add_state`, not `results`, no gather)
    - `model.fit` of Keras under Horovod with sharded validation data and no `MetricAverageCallback`
    - a reduction whose result is lost: `dist.all_reduce(loss / n)`, `hvd.allreduce(loss)` as a statement
    - a `ReduceLROnPlateau` that uses such a score
    - Lightning's `self.log` in `validation_step`, `test_step` and the hooks after them without `sync_dist=True`, with
      several devices

    ## Why is this bad
    The score of one process is that of its part. So the best checkpoint, and when to stop, depend on the rank.

    ## What happens with N processes
    The score that is shown is that of 1/N of the data. If each process decides by its own score, some stop and some
    continue: the job hangs.

    ## Known problems
    In other files, names decide: a metric object (torchmetrics), or a function that is named as if it reduced, counts
    as reducing. Confidence is low for what steers a rate, unless the same file shows the function that reads sharded
    validation data. It is low, too, for what is logged if nothing in the program mentions several devices.

    ## Use instead
    Sum the totals and counts over all processes (`dist.all_reduce`), then divide; `sync_dist=True` in Lightning.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR310", "metric-not-reduced", "warning", "data"
    cluster = "The score is that of 1/N of the data; if each process decides by its own, some stop and others continue."
    advice = "all_reduce the sum and the count before dividing; with Lightning, log with sync_dist=True."
    words = (
        *("DistributedSampler", "validation_step", "test_step", "_epoch_end", "best", *_REDUCTIONS),
        *("setup_dataloaders", "process_index", "pmap", "loader", "torcheval", "torchmetrics", "mmengine"),
        *("detectron2", "validation_data"),
    )
    nodes = (ast.Call, ast.FunctionDef, ast.ClassDef)
    calls = ("step", "log", "log_dict", "compute", "fit", *_REDUCTIONS)
    bad = (
        # The mean that a function returns of its part; the loss of one device, taken for that of all.
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def validate(model, val_loader):
    losses = []
    for batch in val_loader:
        losses.append(model(batch))
    return torch.stack(losses).mean()


def main(model, val_set):
    loader = DataLoader(val_set, 32, sampler=DistributedSampler(val_set))
    loss = validate(model, loader)
    if dist.get_rank() == 0:
        print(loss)
"""
            },
            at=(10,),
        ),
        Example(
            {
                "train.py": """\
import jax


@jax.pmap
def eval_step(params, batch):
    loss = model.apply(params, batch).mean()
    return loss


def evaluate(params, batches):
    for batch in batches:
        loss = eval_step(params, batch)
        if jax.process_index() == 0:
            print(loss[0])
"""
            },
            at=(7,),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def validate(model, loader):
    total = 0
    for x, y in loader:
        total += model(x, y).item()
    return total / len(loader)


def main(model, train_set, val_set):
    dist.init_process_group("nccl")
    val_loader = DataLoader(val_set, sampler=DistributedSampler(val_set, shuffle=False))
    best = 1e9
    for _ in range(3):
        val_loss = validate(model, val_loader)
        if val_loss < best:
            best = val_loss
"""
            },
            at=(9,),
        ),
        Example(
            {
                "module.py": """\
import lightning as L


class Net(L.LightningModule):
    def validation_step(self, batch, index):
        self.log("val_loss", self(batch))

    def training_step(self, batch, index):
        return self.shared(batch, "train")

    def test_step(self, batch, index):
        return self.shared(batch, "test")

    def shared(self, batch, stage):
        loss = self(batch)
        self.log(f"{stage}/loss", loss, prog_bar=True)
        return loss
"""
            },
            at=(6, 16),
        ),
        Example(
            {
                "train.py": """\
import horovod.torch as hvd
import torch.distributed as dist


def mean(loss, scores, count):
    dist.all_reduce(loss / count)
    dist.all_reduce(scores.cpu())
    hvd.allreduce(count)
    return loss, scores, count


mean(1, [], 2)
"""
            },
            at=(6, 7, 8),
        ),
        Example(
            {
                "train.py": """\
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DistributedSampler


def main(optimizer, train, epoch_loss):
    sampler = DistributedSampler(train)
    scheduler = ReduceLROnPlateau(optimizer)
    scheduler.step(epoch_loss)
"""
            },
            at=(8,),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from torcheval.metrics import BinaryAUROC


def evaluate(model, loader):
    auroc = BinaryAUROC()
    for x, y in loader:
        auroc.update(model(x), y)
    if dist.is_initialized():
        dist.barrier()
    return auroc.compute()
"""
            },
            at=(11,),
        ),
    )
    good = (
        # A warm-up, and a part of a tensor that somebody holds.
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist


def main(model):
    dist.all_reduce(torch.zeros(1).cuda())
    for p in model.parameters():
        dist.all_reduce(p.data.view(-1))
"""
            }
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DistributedSampler


def main(optimizer, train, loss):
    sampler = DistributedSampler(train)
    scheduler = ReduceLROnPlateau(optimizer)
    dist.all_reduce(loss)
    scheduler.step(loss)
"""
            }
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def validate(model, loader):
    total = sum(model(x, y) for x, y in loader)
    dist.all_reduce(total)
    return total.item()


def main(model, val_set):
    val_loader = DataLoader(val_set, sampler=DistributedSampler(val_set))
    best = 1e9
    val_loss = validate(model, val_loader)
    if val_loss < best:
        best = val_loss
"""
            }
        ),
        Example(
            {
                "module.py": """\
import lightning as L


class Net(L.LightningModule):
    def validation_step(self, batch, index):
        self.log("val_loss", self(batch), sync_dist=True)
        self.log("val_acc", self.accuracy)
        self.log("val_loss_mean", self.val_loss)

    def training_step(self, batch, index):
        return self.shared(batch)

    def shared(self, batch):
        self.log("train_loss", self(batch))
""",
                "fit.py": """\
import lightning as L
from module import Net

L.Trainer(devices=1).fit(Net())
""",
                "alone.py": """\
import lightning as L


class Alone(L.LightningModule):
    def training_step(self, batch, index):
        self.log("val_loss", self(batch))
""",
            }
        ),
    )

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.ClassDef):
            yield from self._left_apart(node, file)
        elif isinstance(node, ast.FunctionDef):
            yield from self._returned(node, file)
        elif isinstance(node, ast.Call) and (lost := thrown_away(node, file)) is not None:
            yield self.local(file, node, f"{ast.unparse(lost)} {_LOST}", cluster=told.KEPT[0], advice=told.KEPT[1])
        elif isinstance(node, ast.Call):
            yield from self._called(node, file)

    def _called(self, call: ast.Call, file: File) -> Iterator[Finding]:
        if tail_of(call) in ("log", "log_dict") and (kept := unsynced(call, file)):
            notes = [Note("so is this", file.place(other)) for other in kept[1:]]
            found = self.finding(file.place(call), file.symbol(call), told.LOGGED, notes=notes)
            yield from (found, replace(found, confidence="low"))  # the surer one stands or falls with the program
        elif tail_of(call) == "compute" and counts_alone(call, file):
            yield self.local(file, call, told.COUNTS, advice=told.OF_TORCHEVAL)
        elif tail_of(call) == "fit" and is_unaveraged(call, file):
            yield self.local(file, call, told.FITS, advice=told.OF_KERAS)
        elif steers_rate(call, file):
            found = self.local(file, call, told.STEERS)
            yield found if follows_own_score(call, file) else replace(found, confidence="low")

    def _left_apart(self, owner: ast.ClassDef, file: File) -> Iterator[Finding]:
        """Look at what a metric keeps under names that its framework does not know."""
        if (left := left_apart(owner, file)) is not None:
            notes = [Note("each process adds its own here", file.place(left.filled))]
            message = f"{owner.name} makes its number of {left.name}: {told.APART}"
            symbol, place = file.symbol(left.read), file.place(left.read)
            found = self.finding(place, symbol, message, notes=notes, advice=told.OF_STATE)
            yield from (found, replace(found, confidence="low"))  # as above

    def _returned(self, function: ast.FunctionDef, file: File) -> Iterator[Finding]:
        """Look at what a function returns of its process' part of the data, or of its device's."""
        given = list(given_away(function, file))
        if (own := own_mean(function, file)) is not None:
            calls = calls_of(file).get(function.name, ())
            notes = [Note("it is called here", file.place(call)) for call in calls]
            notes += [Note("it is sharded here", file.place(own.source))] if own.source is not None else []
            notes += [Note(f"{tail_of(call)}{told.IS_GIVEN}", file.place(call)) for call in own.handed]
            message = f"{function.name} {told.OF_PART}" if own.sure else f"{function.name} {told.OF_SOME}"
            message = f"{function.name} asks {own.kind} {told.OF_COUNTER}" if own.kind else message
            yield self.finding(file.place(own.mean), file.symbol(function.body[0]), message, notes=notes)
        for called in dict.fromkeys(tail_of(call) for call, _ in given):
            first, *others = [(call, source) for call, source in given if tail_of(call) == called]
            notes = [Note("it is sharded here", file.place(first[1]))]
            notes += [Note("it is called here too", file.place(call)) for call, _ in others]
            yield self.finding(file.place(first[0]), file.symbol(first[0]), f"{called} {told.ELSEWHERE}", notes=notes)
        if distributed(file) and (taken := taken_for_all(function, file)) is not None:
            places = [("one device's is taken here", taken.use), ("it is computed here", taken.computed)]
            notes = [Note(text, file.place(at)) for text, at in places if at is not None]
            message = (
                f"{ast.unparse(taken.value)} of each device is returned unreduced, and the value of one is used for all"
            )
            yield self.finding(file.place(taken.value), file.symbol(function), message, notes=notes, advice=told.OF_JAX)

    def stands(self, finding: Finding, program: Program) -> bool:
        """Whether what Lightning logs is logged by several processes."""
        handed = {note.text.removesuffix(told.IS_GIVEN) for note in finding.notes if note.text.endswith(told.IS_GIVEN)}
        if not handed.isdisjoint(program.facts.meeting_functions):
            return False
        if finding.message.endswith(_LOST):
            return not program.facts.nobody_calls(finding.symbol)
        if finding.message.endswith(told.ELSEWHERE):
            called = f".{finding.message.partition(' ')[0]}"
            return any(function.endswith(called) for function in program.facts.own_parts)
        if finding.message.endswith(told.OF_COUNTER):
            kind = finding.message.removesuffix(f" {told.OF_COUNTER}").rpartition(" ")[2]
            return finding.symbol in program.facts.own_parts and kind not in program.facts.meeting_kinds
        if finding.message.endswith(told.APART):
            several = program.wraps or not program.packages.isdisjoint(("mmengine", "detectron2"))
            return finding.confidence == "low" or several or finding.place.path in program.facts.by_trainer
        if finding.message != told.LOGGED:
            return not finding.message.endswith(told.OF_SOME) or finding.symbol in program.facts.own_parts
        if finding.confidence == "high" and finding.place.path not in program.facts.by_trainer:
            return False
        return not on_one_device(program.events, finding.place.path)
