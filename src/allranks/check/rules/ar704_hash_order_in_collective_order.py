"""AR704: a loop over a set decides the order of collectives."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.collectives import collective
from allranks.check.tree.origins import latest
from allranks.check.tree.syntax import distributed, name_of, own, tail_of
from allranks.check.tree.words import parts
from allranks.findings import Finding

_KEEP = ("enumerate", "list", "tuple", "reversed", "tqdm", "iter")
_NUMBERS = frozenset({"range", "rank", "ranks", "size", "idx", "index", "indices", "id", "ids", "step", "steps", "num"})
_DEEPEST = 5


class HashOrderInCollectiveOrder(LocalRule):
    """
    ## What it does
    Finds a loop over a set, or over a list made of one, whose body calls a collective.

    ## Why is this bad
    Python orders the strings of a set by a hash that differs from process to process (PYTHONHASHSEED).

    ## What happens with N processes
    Collectives are matched by order: the sum of one metric on rank 0 matches the sum of another on rank 1. Shapes are
    often alike, so nothing fails.

    ## Known problems
    Sets of integers have the same order everywhere; they are recognised by their names.

    ## Use instead
    `for name in sorted(names):`.
    """

    code, name, severity, row = "AR704", "hash-order-in-collective-order", "error", "collectives"
    cluster = "Each process has its own order, so different things are reduced together, without an error."
    advice = "Loop over sorted(...)."
    words = ("set(", "{")
    nodes = (ast.For,)
    bad = (
        """\
import torch.distributed as dist


def reduce(metrics, others):
    for name in set(metrics) | set(others):  # <-- found
        dist.all_reduce(metrics[name])
""",
    )
    good = (
        """\
import torch.distributed as dist


def reduce(metrics, ranks):
    for name in sorted(set(metrics)):
        dist.all_reduce(metrics[name])
    for rank in set(ranks):
        dist.broadcast(metrics["loss"], src=rank)
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test and distributed(file)

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.For) or not _is_set(node.iter, file, 0) or _is_of_numbers(node):
            return
        if any(isinstance(at, ast.Call) and collective(at, file) is not None for at in own(node)):
            yield self.local(file, node.iter, f"{ast.unparse(node.iter)} has another order on each process")


def _is_set(source: ast.expr, file: File, depth: int) -> bool:
    if depth > _DEEPEST:
        return False
    if isinstance(source, ast.Set | ast.SetComp):
        return True
    if isinstance(source, ast.BinOp) and isinstance(source.op, ast.BitOr | ast.BitAnd | ast.Sub):
        return _is_set(source.left, file, depth + 1) or _is_set(source.right, file, depth + 1)
    if isinstance(source, ast.Call):
        named = name_of(source, file)
        if named in ("set", "frozenset"):
            return True
        merges = tail_of(source) in ("union", "intersection", "difference") and isinstance(source.func, ast.Attribute)
        if merges and isinstance(source.func, ast.Attribute):
            return _is_set(source.func.value, file, depth + 1)
        return named in _KEEP and bool(source.args) and _is_set(source.args[0], file, depth + 1)
    stored = (
        [one for one in latest(source, file) if one is not source]
        if isinstance(source, ast.Name | ast.Attribute)
        else []
    )
    return bool(stored) and all(_is_set(one, file, depth + 1) for one in stored)


def _is_of_numbers(loop: ast.For) -> bool:
    return not parts(f"{ast.unparse(loop.target)} {ast.unparse(loop.iter)}").isdisjoint(_NUMBERS)
