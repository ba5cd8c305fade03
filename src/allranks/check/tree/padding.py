"""Where groups of samples are padded with their own beginning, before they are dealt out to processes."""

from __future__ import annotations

import ast

from allranks.check.sources.source import File
from allranks.check.tree.splits import Split
from allranks.check.tree.syntax import function_of, inside, own, tail_of


def padded_once(split: Split, file: File) -> ast.AST | None:
    """Return ``xs + xs[:missing]`` (or ``xs += xs[:missing]``) if what is dealt out was padded so, group by group.

    A slice gives no more than there is: a group of 3 that lacks 5 is 6 long. For all data at once that hardly ever
    happens; in a loop over groups (sizes, lengths, kinds) it does.
    """
    function = function_of(split.node, file)
    loops = [p for p, _ in inside(split.node, file) if isinstance(p, ast.For)]
    if function is None or not loops or not isinstance(split.source, ast.Name):
        return None
    name = split.source.id
    end = getattr(split.node, "lineno", 0)
    pads = [at for at in own(loops[0]) if isinstance(at, ast.stmt) and at.lineno <= end and _pads(at, name)]
    repeats = any(
        isinstance(at, ast.BinOp) and isinstance(at.op, ast.Mult) and _is_list(at, name) for at in own(function)
    )
    compared = any(isinstance(at, ast.If | ast.While) and _compares(at.test, name) for at in own(loops[0]))
    return pads[0] if pads and not repeats and not compared else None


def _pads(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Add) and _is(node.target, name) and _is_beginning(node.value, name)
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add):
        return _is(node.value.left, name) and _is_beginning(node.value.right, name)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and tail_of(node.value) == "extend":
        function = node.value.func
        extends = isinstance(function, ast.Attribute) and _is(function.value, name)
        return extends and bool(node.value.args) and _is_beginning(node.value.args[0], name)
    return False


def _is_beginning(node: ast.AST, name: str) -> bool:
    """``xs[:missing]``, where how many are missing is no constant."""
    if not isinstance(node, ast.Subscript) or not _is(node.value, name) or not isinstance(node.slice, ast.Slice):
        return False
    return node.slice.lower is None and not isinstance(node.slice.upper, ast.Constant | type(None))


def _is_list(product: ast.BinOp, name: str) -> bool:
    """``xs * times``, ``(xs * times)[:missing]``"""
    return any(_is(side, name) for side in (product.left, product.right))


def _compares(test: ast.expr, name: str) -> bool:
    """Somebody asks whether the group is long enough."""
    asks = isinstance(test, ast.Compare) and "len" in ast.unparse(test)
    return asks and any(_is(at, name) for at in ast.walk(test))


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
