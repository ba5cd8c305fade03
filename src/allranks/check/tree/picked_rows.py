"""Rows that a condition leaves of what a process has: how many, its data says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import function_called
from allranks.check.tree.syntax import own, tail_of

_SAME = frozenset(
    [
        *("detach", "contiguous", "cpu", "cuda", "to", "float", "half", "double", "long", "int", "clone", "numpy"),
        *(
            "reshape",
            "view",
            "flatten",
            "ravel",
            "unsqueeze",
            "squeeze",
            "asarray",
            "as_tensor",
            "from_numpy",
            "tensor",
        ),
    ]
)
_MASKS = frozenset(
    [
        *("isnan", "isinf", "isfinite", "isin", "logical_and", "logical_or", "logical_not", "bool", "eq", "ne", "gt"),
        *("ge", "lt", "le"),
    ]
)
_PLACES = frozenset(["nonzero", "argwhere", "flatnonzero", "where"])
# As long as there is something to find; rows one behind the other.
_FINDS, _JOINS = (
    frozenset(["unique", "nonzero", "argwhere", "masked_select"]),
    frozenset(["cat", "concat", "concatenate"]),
)
# What shows that the lengths are told, or made one.
_LEVELS = re.compile(r"(^|_)(pad|padded|padding)(_|$)|^new_(zeros|empty|full)$|gather_object|variable|ragged|uneven")
_LENGTHS = re.compile(r"shape|size|len\(|numel|count|length|num_")
_DEEPEST = 5


def is_picked(sent: ast.expr, scope: ast.AST, file: File) -> bool:
    """Whether what is sent at this place are rows that a condition has left, as far as the function around shows, or
    one of its file that gives it nothing else."""
    if _picked(sent, scope, sent.lineno, _DEEPEST):
        return True
    made = _last(sent.id, scope, sent.lineno)[0] if isinstance(sent, ast.Name) else sent
    function = function_called(made, file) if isinstance(made, ast.Call) else None
    given = [at.value for at in own(function) if isinstance(at, ast.Return)] if function is not None else []
    return (
        function is not None
        and bool(given)
        and all(value is not None and _picked(value, function, value.lineno, _DEEPEST) for value in given)
    )


def is_generated(sent: ast.expr, scope: ast.AST) -> bool:
    """Whether what is sent, or a part of it, is text that a model has made: it ends where the longest one ends."""
    parts = sent.elts if isinstance(sent, ast.Tuple | ast.List) else [sent]
    values = (_last(at.id, scope, sent.lineno)[0] if isinstance(at, ast.Name) else at for at in parts)
    return any(isinstance(at, ast.Call) and tail_of(at) == "generate" for at in values)


def is_levelled(scope: ast.AST) -> bool:
    """Whether a function makes lengths equal, or tells the others of its own."""
    calls = [at for at in walk(scope) if isinstance(at, ast.Call)]
    if any(_LEVELS.search(tail_of(call)) for call in calls):
        return True
    sent = (at for call in calls if "gather" in tail_of(call) or "reduce" in tail_of(call) for at in call.args)
    return any(_LENGTHS.search(ast.unparse(at)) for at in sent)


def _picked(node: ast.expr, scope: ast.AST, line: int, depth: int) -> bool:
    if isinstance(node, ast.Subscript):
        keys = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return any(_chooses(key, scope, line, depth) for key in keys)
    if isinstance(node, ast.Call) and tail_of(node) in _SAME:
        inner = node.func.value if isinstance(node.func, ast.Attribute) else None
        given = node.args[0] if node.args and isinstance(inner, ast.Name | None) else None
        return any(_picked(at, scope, line, depth) for at in (inner, given) if at is not None)
    if isinstance(node, ast.Call) and tail_of(node) in _JOINS and node.args:
        parts = node.args[0].elts if isinstance(node.args[0], ast.Tuple | ast.List) else []
        return any(_picked(part, scope, line, depth) for part in parts)
    if isinstance(node, ast.Call):
        return tail_of(node) in _FINDS and not any("return_" in str(k.arg) for k in node.keywords)
    if isinstance(node, ast.Name) and depth:
        value, at = _last(node.id, scope, line)
        return value is not None and _picked(value, scope, at, depth - 1)
    return False


def _chooses(key: ast.expr, scope: ast.AST, line: int, depth: int) -> bool:
    """Whether an index is true of some rows, or tells of which something is true."""
    if isinstance(key, ast.Compare):
        return not any(isinstance(op, ast.In | ast.NotIn | ast.Is | ast.IsNot) for op in key.ops)
    if isinstance(key, ast.UnaryOp):
        return isinstance(key.op, ast.Invert) and _chooses(key.operand, scope, line, depth)
    if isinstance(key, ast.BinOp):
        either = isinstance(key.op, ast.BitAnd | ast.BitOr)
        return either and any(_chooses(side, scope, line, depth) for side in (key.left, key.right))
    if isinstance(key, ast.Call):
        if tail_of(key) in _PLACES:
            return len(key.args) < 3
        inner = key.func.value if isinstance(key.func, ast.Attribute) else None
        return tail_of(key) in _MASKS or (
            tail_of(key) in _SAME and inner is not None and _chooses(inner, scope, line, depth)
        )
    if isinstance(key, ast.Subscript):  # torch.where(x > 0)[0]
        return isinstance(key.value, ast.Call) and _chooses(key.value, scope, line, depth)
    if isinstance(key, ast.Name) and depth:
        value, at = _last(key.id, scope, line)
        return value is not None and _chooses(value, scope, at, depth - 1)
    return False


def _last(name: str, scope: ast.AST, line: int) -> tuple[ast.expr | None, int]:
    """Return what was stored last under a name above a line, and where."""
    stored = [(value, value.lineno) for target, value in _stores(scope) if target == name and value.lineno < line]
    return max(stored, key=lambda one: one[1]) if stored else (None, 0)


def _stores(scope: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for at in walk(scope):
        for target in at.targets if isinstance(at, ast.Assign) else ():
            assert isinstance(at, ast.Assign)
            if isinstance(target, ast.Tuple) and isinstance(at.value, ast.Tuple):
                pairs = zip(target.elts, at.value.elts, strict=False)
            else:
                pairs = zip(target.elts if isinstance(target, ast.Tuple) else [target], [at.value] * 9, strict=False)
            yield from ((one.id, value) for one, value in pairs if isinstance(one, ast.Name))
