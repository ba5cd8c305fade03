"""Lists and dicts that some ranks alone fill: a loop over them has no round on the others."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.sources.source import File
from allranks.check.tree.syntax import function_of, inside, own, rank_guard, tail_of

_FILLS = ("update", "append", "extend", "add", "insert", "setdefault")
_PARTS = ("items", "keys", "values")
_SHOWN = ("enumerate", "sorted", "list", "len", "tqdm", "print", "reversed")


def is_filled_on_one(loop: ast.For, file: File) -> bool:
    """Say whether a loop goes over what is empty at first in its function, and which some ranks alone fill there."""
    over: ast.expr | None = loop.iter
    while isinstance(over, ast.Call):
        over = _gone_over(over)
    if not isinstance(over, ast.Name):
        return False
    named = [n for n in own(function_of(loop, file) or file.tree) if isinstance(n, ast.Name) and n.id == over.id]
    around = [p for p, _ in inside(loop, file)]
    last = max((at for at in named if at.lineno < loop.lineno and _is_stored(at)), key=_line, default=None)
    if last is None or not _begins_empty(last, file) or not any(p in around for p in _above(last, file)):
        return False
    between = [at for at in named if last.lineno < at.lineno < loop.lineno]
    changed = [at for at in between if _changes(at, file)]
    return bool(changed) and all(rank_guard(at, file) is not None for at in changed)


def _line(name: ast.Name) -> int:
    return name.lineno


def _is_stored(name: ast.Name) -> bool:
    return not isinstance(name.ctx, ast.Load)


def _above(stored: ast.Name, file: File) -> Iterator[ast.AST]:
    """Yield the block that the statement stands in: whoever comes by a part of it has come by the statement."""
    return (p for p, child in inside(stored, file) if isinstance(child, ast.Assign))


def _gone_over(call: ast.Call) -> ast.expr | None:
    if isinstance(call.func, ast.Attribute) and call.func.attr in _PARTS:
        return call.func.value
    return call.args[0] if tail_of(call) in _SHOWN and call.args else None


def _begins_empty(name: ast.Name, file: File) -> bool:
    above = next(file.parents(name), None)
    value = above.value if isinstance(above, ast.Assign) and name in above.targets else None
    if isinstance(value, ast.Call):
        return tail_of(value) in ("dict", "list", "OrderedDict", "set") and not (value.args or value.keywords)
    return (isinstance(value, ast.Dict) and not value.keys) or (isinstance(value, ast.List) and not value.elts)


def _changes(name: ast.Name, file: File) -> bool:
    """It is filled there, or handed to what may fill it."""
    above = next(file.parents(name), None)
    if isinstance(above, ast.Attribute):
        return above.attr in _FILLS
    if isinstance(above, ast.Subscript):
        return not isinstance(above.ctx, ast.Load)
    return isinstance(above, ast.keyword) or (isinstance(above, ast.Call) and tail_of(above) not in _SHOWN)
