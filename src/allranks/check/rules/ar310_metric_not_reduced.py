"""AR310: each process decides by the score of its own part of the validation data."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.program import Program
from allranks.check.rule import LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import values
from allranks.check.tree.splits import deals_held_out, splits
from allranks.check.tree.syntax import (
    calls_of,
    class_of,
    function_of,
    has_stars,
    is_constant,
    keyword,
    nodes_in,
    own,
    places_in,
    rank_guard,
    tail_of,
)
from allranks.check.tree.words import mentions, says
from allranks.findings import Finding, Note

_LOGGED = "the value of this process' part is logged as that of all data"
_STEPS = ("validation_step", "test_step", "on_validation_epoch_end", "validation_epoch_end", "test_epoch_end")
_ELSEWHERE = ", which other files divide"
_MEANS = ("mean", "average", "sum", "accuracy_score", "f1_score", "roc_auc_score", "stack", "cat", "concatenate")


class MetricNotReduced(LocalRule):
    """
    ## What it does
    Finds a score of a part of the data that is used as the score of all of it:

    - a function that goes over held-out data, which this file divides among the processes, and averages what it has
      added up, without a reduction
    - Lightning's `self.log` of a loss or score in `validation_step`, `test_step` and the hooks after them without
      `sync_dist=True`, in a program for several devices

    ## Why is this bad
    The score of one process is that of its part. So the best checkpoint, and when to stop, depend on the rank.

    ## What happens with N processes
    The score that is shown is that of 1/N of the data. If each process decides by its own score, some stop and some
    continue: the job hangs.

    ## Known problems
    Anything that is named as if it reduced, or a metric object, counts as reducing.

    ## Use instead
    Sum the totals and counts over all processes (`dist.all_reduce`), then divide; `sync_dist=True` in Lightning.
    """

    code, name, severity, row = "AR310", "metric-not-reduced", "warning", "data"
    cluster = "The score is that of 1/N of the data; if each process decides by its own, some stop and others continue."
    advice = "all_reduce the sum and the count before dividing; with Lightning, log with sync_dist=True."
    words = (
        *("DistributedSampler", "validation_step", "test_step", "_epoch_end", "setup_dataloaders", "loader"),
        "process_index",
    )
    nodes = (ast.Call, ast.FunctionDef)
    calls = ("log", "log_dict")
    bad = (
        """\
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def evaluate(model, val_set):
    val_loader = DataLoader(val_set, sampler=DistributedSampler(val_set, shuffle=False))
    total = 0.0
    for batch in val_loader:
        total += model(batch).item()
    return total / len(val_loader)  # <-- found


dist.init_process_group("nccl")
print(evaluate(None, []))
""",
        """\
import pytorch_lightning as pl


class Model(pl.LightningModule):
    def validation_step(self, batch, index):
        loss = self.net(batch).mean()
        self.log("val_loss", loss)  # <-- found


pl.Trainer(devices=8, strategy="ddp").fit(Model())
""",
    )
    good = (
        """\
import pytorch_lightning as pl


class Model(pl.LightningModule):
    def training_step(self, batch, index):
        self.log("loss", self.net(batch).mean())

    def validation_step(self, batch, index):
        self.log("val_loss", self.net(batch).mean(), sync_dist=True)


pl.Trainer(devices=8, strategy="ddp").fit(Model())
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.Call):
            function = function_of(node, file)
            logs = [] if function is None else [at for at in own(function) if _is_unsynced(at, file)]
            if logs and logs[0] is node:
                notes = [Note("so is this", file.place(other)) for other in logs[1:]]
                yield self.finding(file.place(node), file.symbol(node), _LOGGED, notes=notes)
        elif isinstance(node, ast.FunctionDef) and (mean := _mean(node, file)) is not None:
            found = self.local(file, mean, f"{node.name} averages this process' part of the data")
            here = deals_held_out(file) or bool(splits(node, file))
            yield found if here else replace(found, message=f"{found.message}{_ELSEWHERE}")

    def confirm(self, finding: Finding, program: Program) -> bool:
        """Whether what Lightning logs is logged by several processes."""
        path, facts = finding.place.path, program.facts
        if finding.message.endswith(_ELSEWHERE):
            return any(map(deals_held_out, facts.files(path)))
        return finding.message != _LOGGED or path in facts.by_trainer


def _is_unsynced(call: ast.AST, file: File) -> bool:
    """Whether it is ``self.log`` of a plain loss or score where Lightning looks at data that it has divided."""
    if not isinstance(call, ast.Call) or tail_of(call) not in ("log", "log_dict") or has_stars(call) or not call.args:
        return False
    function, owner = function_of(call, file), class_of(call, file)
    if function is None or owner is None or ast.unparse(call.func)[:5] != "self.":
        return False
    hooks = (at for at in owner.body if isinstance(at, ast.FunctionDef) and at.name in _STEPS)
    called = {tail_of(at) for hook in hooks for at in own(hook) if isinstance(at, ast.Call)}
    if function.name not in _STEPS and function.name not in called:
        return False
    words = {one.arg for one in call.keywords}
    if words & {"sync_dist", "rank_zero_only"} or is_constant(keyword(call, "on_epoch"), False):
        return False
    value = call.args[-1]
    stored = [value, *values(value, file)]
    scores = any(mentions(one, "score") for one in (*call.args, *stored)) and not mentions(call.args[0], "trains")
    by_itself = any(
        (ast.unparse(one).startswith("self.") and isinstance(one, ast.Attribute)) or _agrees(one) for one in stored
    )
    return scores and not by_itself and rank_guard(call, file) is None


def _agrees(node: ast.AST) -> bool:
    """Whether something is called that, by its name, makes one value of those of all processes."""
    calls = (ast.unparse(at.func) for at in walk(node) if isinstance(at, ast.Call))
    return any(says(name, "agrees") or name.endswith((".compute", "compute_metrics")) for name in calls)


def _mean(function: ast.FunctionDef, file: File) -> ast.AST | None:
    """Return where a function makes one number of what a loop over held-out data, which the file divides, adds up."""
    if says(function.name, "trains"):
        return None
    text = file.code_in(function)
    calls = calls_of(file).get(function.name, ())
    if "backward(" in text or _agrees(function) or any(rank_guard(c, file) for c in calls):
        return None
    for loop in (at for at in own(function) if isinstance(at, ast.For)):
        of_function = says(function.name, "held_out") and (mentions(loop.iter, "loader") or splits(loop.iter, file))
        over = mentions(loop.iter, "held_out") or of_function
        if not over or rank_guard(loop, file) is not None or mentions(loop.iter, "trains"):
            continue
        names = {place for at in nodes_in(loop.body) for place in _filled(at)}
        behind = [at for at in own(function) if getattr(at, "lineno", 0) > (loop.end_lineno or 0)]
        if any(_is_handed(at, names) for at in behind):
            continue
        found = next((at for at in behind if _is_mean(at, names)), None)
        if found is not None:
            return found
    return None


def _is_handed(at: ast.AST, names: set[str]) -> bool:
    """Whether a statement gives what was added up to what may reduce it in place: ``world.sum_(total)``."""
    call = at.value if isinstance(at, ast.Expr) and isinstance(at.value, ast.Call) else None
    return call is not None and tail_of(call) != "print" and any(names & places_in(one) for one in call.args)


def _filled(at: ast.AST) -> frozenset[str]:
    """Return what a statement adds to: ``total += loss``, ``losses.append(loss)``."""
    if isinstance(at, ast.AugAssign):
        return places_in(at.target)
    grows = (
        isinstance(at, ast.Call)
        and isinstance(at.func, ast.Attribute)
        and at.func.attr in ("append", "update", "extend")
    )
    return (
        places_in(at.func.value)
        if grows and isinstance(at, ast.Call) and isinstance(at.func, ast.Attribute)
        else frozenset()
    )


def _is_mean(at: ast.AST, names: set[str]) -> bool:
    if isinstance(at, ast.BinOp | ast.AugAssign) and isinstance(at.op, ast.Div):
        return not names.isdisjoint(places_in(at.left if isinstance(at, ast.BinOp) else at.target))
    if isinstance(at, ast.Attribute) and at.attr in ("avg", "average", "mean"):
        return not names.isdisjoint(places_in(at.value))
    return isinstance(at, ast.Call) and tail_of(at) in _MEANS and not names.isdisjoint(places_in(at))
