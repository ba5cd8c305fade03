"""What Lightning reduces over all processes as it is logged, and is there only where this process' data says so."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import values
from allranks.check.tree.skips import AGREES
from allranks.check.tree.syntax import inside, is_constant, keyword, tail_of, words_of

_COUNTS = ("numel", "nelement", "sum", "count_nonzero")
_DEEPEST = 4


def logged_by_data(call: ast.Call, file: File) -> ast.expr | None:
    """Return the condition on this process' batch on which ``self.log(..., sync_dist=True)`` hangs, or one of the
    values of ``self.log_dict(..., sync_dist=True)``."""
    if not is_constant(keyword(call, "sync_dist"), True):
        return None
    around = (parent for parent, child in inside(call, file) if isinstance(parent, ast.If) and child in parent.body)
    made = (one for argument in call.args[:1] for one in _comprehensions(argument, file, 0))
    tests = [
        *(branch.test for branch in around),
        *(test for one in made for loop in one.generators for test in loop.ifs),
    ]
    return next((test for test in tests if _has_some(test)), None)


def _comprehensions(node: ast.expr, file: File, depth: int) -> Iterator[ast.DictComp]:
    """Yield those that a dictionary is made of."""
    if isinstance(node, ast.DictComp):
        yield node
    parts = [v for k, v in zip(node.keys, node.values, strict=True) if k is None] if isinstance(node, ast.Dict) else []
    if isinstance(node, ast.Name):
        parts = values(node, file)
    for part in parts if depth < _DEEPEST else ():
        yield from _comprehensions(part, file, depth + 1)


def _has_some(test: ast.expr) -> bool:
    """``mask.any()``, ``mask.sum() > 0``, ``torch.any(mask)``: not of what an object holds, and agreed with nobody."""
    if isinstance(test, ast.BoolOp):
        return any(map(_has_some, test.values))
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _has_some(test.operand)
    words = set(words_of(test))
    if "self" in words or any(map(AGREES.search, words)):
        return False
    if isinstance(test, ast.Compare):
        zero = len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value == 0
        return zero and any(isinstance(at, ast.Call) and _of_tensor(at, *_COUNTS) for at in walk(test.left))
    return isinstance(test, ast.Call) and _of_tensor(test, "any")


def _of_tensor(call: ast.Call, *names: str) -> bool:
    return isinstance(call.func, ast.Attribute) and tail_of(call) in names
