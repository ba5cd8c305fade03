"""AR310: each process decides by the score of its own part of the validation data."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.origins import function_called, values
from allranks.check.rule import Example, LocalRule
from allranks.check.source import File
from allranks.check.syntax import bases_of, class_of, function_of, keyword, name_of, rank_guard, tail_of
from allranks.findings import Finding

_REDUCES = (
    *("all_reduce", "all_gather", "reduce(", "gather", "broadcast", "torchmetrics", "synchronize", "reduce_tensor"),
    *("pmean", "psum", "sync_", "allreduce", "reduce_dict", "reduce_mean"),
)
_METRICS = ("loss", "acc", "score", "metric", "auc", "f1", "bleu", "map", "wer", "perplexity", "ppl")
_EVALUATES = ("val", "eval", "test")


class MetricNotReduced(LocalRule):
    """
    ## What it does
    Finds a program that shards its validation data by a `DistributedSampler`, takes the score from a function of its
    own that reduces nothing, and compares it with the best one so far. Also a `ReduceLROnPlateau` that follows such a
    score, and Lightning's `self.log` in `validation_step` and `test_step` without `sync_dist=True`.

    ## Why is this bad
    The score of one process is that of its part. Which checkpoint is the best, and when to stop, hangs on which rank
    asks.

    ## What happens with N processes
    The score that is shown is that of 1/N of the data. If each process decides by its own, some stop and some go on:
    the job hangs.

    ## Known problems
    A reduction in another file is not seen; a metric object that reduces by itself (torchmetrics) is known by its
    name only. That is why this rule is opt-in.

    ## Use instead
    Sum the totals and counts over all processes (`dist.all_reduce`), then divide; `sync_dist=True` in Lightning.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row, default = "AR310", "metric-not-reduced", "warning", "data", False
    cluster = "The score is that of 1/N of the data; if each process decides by its own, some stop and others go on."
    advice = "all_reduce the sum and the count before dividing; with Lightning, log with sync_dist=True."
    words = ("DistributedSampler", "validation_step", "test_step")
    nodes = (ast.Compare, ast.Call)
    calls = ("step", "log", "log_dict")
    bad = (
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
            at=(18,),
        ),
        Example(
            {
                "module.py": """\
import lightning as L


class Net(L.LightningModule):
    def validation_step(self, batch, index):
        self.log("val_loss", self(batch))
"""
            },
            at=(6,),
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
    )
    good = (
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
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.Call):
            if _steers_rate(node, file):
                message = "the learning rate of each process follows the score of its own part of the data"
                yield self.local(file, node, message)
            elif tail_of(node) in ("log", "log_dict") and _is_unsynced_log(node, file):
                yield self.local(file, node, "the value of this process' part is logged as that of the whole")
        elif isinstance(node, ast.Compare) and (score := _local_score(node, file)) is not None:
            yield self.local(file, node, f"{score} is the score of this process' part of the validation data")


def _steers_rate(call: ast.Call, file: File) -> bool:
    """``ReduceLROnPlateau(...).step(loss)`` where the data is dealt out and nothing is reduced."""
    if "ReduceLROnPlateau" not in file.text or "DistributedSampler" not in file.text or not call.args:
        return False
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "step" or rank_guard(call, file) is not None:
        return False
    made = values(call.func.value, file)
    plateau = any(isinstance(one, ast.Call) and tail_of(one) == "ReduceLROnPlateau" for one in made)
    return plateau and not any(word in file.text for word in _REDUCES)


def _is_unsynced_log(call: ast.Call, file: File) -> bool:
    function, owner = function_of(call, file), class_of(call, file)
    if function is None or owner is None or function.name not in ("validation_step", "test_step"):
        return False
    of_self = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "self"
    modules = any(base.endswith("LightningModule") for base in bases_of(owner, file))
    return of_self and modules and keyword(call, "sync_dist") is None and "torchmetrics" not in file.text


def _local_score(node: ast.Compare, file: File) -> str | None:
    """Return the score that is compared with a best one, if it comes from a function here that reduces nothing."""
    sides = [node.left, *node.comparators]
    if len(sides) != 2 or not isinstance(node.ops[0], ast.Lt | ast.Gt | ast.LtE | ast.GtE):
        return None
    best = [s for s in sides if "best" in ast.unparse(s).lower()]
    others = [s for s in sides if s not in best]
    if len(best) != 1 or any(word in file.text for word in _REDUCES) or not _splits_validation(file):
        return None
    score = others[0]
    if not any(word in ast.unparse(score).lower() for word in _METRICS) or rank_guard(node, file) is not None:
        return None
    made = [v for v in values(score, file) if isinstance(v, ast.Call) and function_called(v, file) is not None]
    evaluated = [v for v in made if any(word in tail_of(v).lower() for word in _EVALUATES)]
    return ast.unparse(score) if evaluated else None


def _splits_validation(file: File) -> bool:
    """A sampler deals the validation data out."""
    return any(
        isinstance(n, ast.Call)
        and name_of(n, file) == "torch.utils.data.DistributedSampler"
        and n.args
        and any(word in ast.unparse(n.args[0]).lower() for word in _EVALUATES)
        for n in file.nodes
    )
