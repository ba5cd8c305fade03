"""AR209: a process leaves a training loop by its own loss."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.nodes import walk
from allranks.check.rule import Example, LocalRule
from allranks.check.source import File
from allranks.check.syntax import tail_of, words_of
from allranks.findings import Finding

_OWN = re.compile(r"loss|(?<![a-z])kl(?![a-z])|policykl|approxkl|isnan|isinf|isfinite", re.IGNORECASE)
_AGREES = re.compile(r"reduce|gather|broadcast|sync|agree|psum|pmean|allreduce")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class RankLocalLoopExit(LocalRule):
    """
    ## What it does
    Finds `break`, `continue` or `return` in a loop that runs backward passes, on a condition on this process' own
    loss or divergence (a NaN, a KL over its limit), where the value was not reduced over the processes first.

    ## Why is this bad
    Each process has other data, so each has another loss. A backward pass of a wrapped model is a collective.

    ## What happens with N processes
    The process that meets the NaN skips its backward pass; the others wait in theirs, or it is one step ahead of them
    from then on.

    ## Known problems
    A value that another file reduces under a name that does not say so. Tests of gradients are taken to be the same on
    all ranks, because DDP has reduced them by then, and so is whether there is a loss at all.

    ## Use instead
    Reduce the value, or the decision, over all processes, and let all skip or stop together.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR209", "rank-local-loop-exit", "error", "collectives"
    cluster = "One process skips its backward pass, and the others wait for it there."
    advice = "Reduce the decision over all processes (all_reduce with MAX) before anybody skips or stops."
    words = ("accelerator", "torch.distributed", "DistributedDataParallel", "deepspeed")
    nodes = (ast.If,)
    bad = (
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def train(model, loader, optimizer):
    model = DDP(model)
    for x in loader:
        loss = model(x)
        if torch.isnan(loss):
            continue
        loss.backward()
        optimizer.step()
""",
            },
            at=(9,),
        ),
        Example(
            {
                "train.py": """\
class Trainer:
    def fit(self, loader):
        for batch in loader:
            stats = self.minibatch(batch)
            if stats["policykl"] > 1.5 * self.target_kl:
                break

    def minibatch(self, batch):
        loss = self.model(batch)
        self.accelerator.backward(loss)
        return {"policykl": loss}
""",
            },
            at=(5,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist

def train(model, loader, optimizer):
    for x in loader:
        loss = model(x)
        bad = torch.isnan(loss).float()
        dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        if bad > 0:
            continue
        loss.backward()
        total_loss = reduce_mean(loss)
        if total_loss > 100:
            break
        if torch.isnan(loss):
            raise RuntimeError("the loss is not a number")
        reduced = loss.clone()
        dist.all_reduce(reduced)
        checked = reduced
        if checked.isnan():
            continue

def evaluate(model, loader):
    for x in loader:
        if torch.isnan(model.loss(x)):
            continue

def fit(model, loader, optimizer):
    for x in loader:
        loss = model(x)
        if loss is None:
            continue
        loss.backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if not torch.isfinite(grad_norm):
            continue
        optimizer.step()
""",
            },
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        assert isinstance(node, ast.If)
        if file.is_test or not any(isinstance(s, ast.Break | ast.Continue | ast.Return) for s in node.body):
            return
        words = list(words_of(node.test))
        if _is_alike(node.test, words) or not any(map(_OWN.search, words)) or any(map(_AGREES.search, words)):
            return
        around = _loop_and_function(node, file)
        if around is None:
            return
        loop, function = around
        if _steps(loop, file.once("stepping", file.tree, _stepping)) and not _agreed(function) & (
            {n.id for n in _names(node.test)} - {"self"}
        ):
            how = next(
                type(s).__name__.lower() for s in node.body if isinstance(s, ast.Break | ast.Continue | ast.Return)
            )
            yield self.local(
                file, node.test, f"{how} by what this process alone computes, in a loop of backward passes"
            )


def _is_alike(test: ast.expr, words: list[str]) -> bool:
    """It asks whether there is a loss at all, or for gradients, which are reduced when the backward pass is done."""
    if isinstance(test, ast.Compare) and ast.unparse(test.comparators[0]) == "None":
        return True
    return any("grad" in word.lower() for word in words) and not any("loss" in word.lower() for word in words)


def _names(node: ast.AST) -> Iterator[ast.Name]:
    return (part for part in walk(node) if isinstance(part, ast.Name))


def _loop_and_function(node: ast.AST, file: File) -> tuple[ast.AST, ast.AST] | None:
    loop: ast.AST | None = None
    for above in file.parents(node):
        if isinstance(above, _FUNCTIONS):
            return (loop, above) if loop is not None else None
        if loop is None and isinstance(above, ast.For | ast.While):
            loop = above
    return (loop, file.tree) if loop is not None else None


def _called(node: ast.AST) -> Iterator[str]:
    return (tail_of(part) for part in walk(node) if isinstance(part, ast.Call))


def _stepping(tree: ast.Module) -> set[str]:
    """Return the functions of this file that run a backward pass."""
    defined = (n for n in walk(tree) if isinstance(n, ast.FunctionDef))
    return {f.name for f in defined if "backward" in _called(f) and f.name != "forward"}


def _steps(loop: ast.AST, stepping: set[str]) -> bool:
    return any(name == "backward" or name in stepping for name in _called(loop))


def _agreed(function: ast.AST) -> set[str]:
    """Return names that went through, or came out of, a reduction over the processes, and what else they are called."""
    found: set[str] = set()
    renamed: list[tuple[str, str]] = []
    for part in walk(function):
        if isinstance(part, ast.Assign | ast.Expr) and any(map(_AGREES.search, _called(part))):
            found |= {name.id for name in _names(part)}
        elif isinstance(part, ast.Assign) and isinstance(part.value, ast.Name):
            renamed += [(target.id, part.value.id) for target in part.targets if isinstance(target, ast.Name)]
    return found | {name for name, other in renamed if other in found}
