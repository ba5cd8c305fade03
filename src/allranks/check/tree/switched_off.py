"""Branches that nobody takes: under a parameter that is off by default, and that no call of its file gives."""

from __future__ import annotations

import ast

from allranks.check.sources.source import File
from allranks.check.tree.origins import values
from allranks.check.tree.syntax import calls_of, class_of, function_of, inside, own, tail_of


def is_switched_off(node: ast.AST, file: File) -> bool:
    """``if shuffle: ...`` in ``def load(files, shuffle=False)``, which its file calls, and never so."""
    above = list(inside(node, file))
    tests = {at.test.id for at, child in above if isinstance(at, ast.If) and _holds(at, child)}  # type: ignore[attr-defined]
    function = above[-1][0] if above else None
    if not tests or not isinstance(function, ast.FunctionDef):
        return False
    return any(_is_off(function, name, file) for name in tests)


def _holds(branch: ast.If, child: ast.AST) -> bool:
    return isinstance(branch.test, ast.Name) and child in branch.body


def _is_off(function: ast.FunctionDef, name: str, file: File) -> bool:
    plain = [*function.args.posonlyargs, *function.args.args]
    place = next((at for at, one in enumerate(plain) if one.arg == name), None)
    defaults = dict(zip([one.arg for one in plain[::-1]], function.args.defaults[::-1], strict=False))
    kept = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    default = {**defaults, **{one.arg: value for one, value in kept}}.get(name)
    calls = calls_of(file).get(function.name, ())
    if not isinstance(default, ast.Constant) or default.value or class_of(function, file) is not None or not calls:
        return False
    return not any(_may_give(call, name, file) or _gives(call, name, place) for call in calls)


def _may_give(call: ast.Call, name: str, file: File) -> bool:
    """It passes arguments on of which not all names stand in the file."""
    if any(isinstance(one, ast.Starred) for one in call.args):
        return True
    return not all(k.arg or _leaves_out(k.value, name, file) for k in call.keywords)


def _leaves_out(options: ast.expr, name: str, file: File) -> bool:
    """``options = dict(batch_size=8)``, to which its function adds nothing."""
    stored = values(options, file) if isinstance(options, ast.Name) else []
    if len(stored) != 1 or not isinstance(options, ast.Name):
        return False
    uses = (at for at in own(function_of(options, file) or file.tree) if isinstance(at, ast.Name))
    if any(at.id == options.id and not _is_told(at, file) for at in uses):
        return False
    made = stored[0]
    if isinstance(made, ast.Call) and tail_of(made) == "dict" and not made.args:
        return all(k.arg not in (None, name) for k in made.keywords)
    return isinstance(made, ast.Dict) and all(isinstance(key, ast.Constant) and key.value != name for key in made.keys)


def _is_told(name: ast.Name, file: File) -> bool:
    """It is stored, or passed on with two stars."""
    above = next(file.parents(name), None)
    return isinstance(name.ctx, ast.Store) or (isinstance(above, ast.keyword) and above.arg is None)


def _gives(call: ast.Call, name: str, place: int | None) -> bool:
    return any(k.arg == name for k in call.keywords) or (place is not None and len(call.args) > place)
