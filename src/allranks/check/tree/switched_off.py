"""Branches that nobody takes: under a parameter that is off by default, and that no call of its file gives."""

from __future__ import annotations

import ast

from allranks.check.sources.source import File
from allranks.check.tree.syntax import calls_of, class_of, has_stars, inside


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
    return not any(has_stars(call) or _gives(call, name, place) for call in calls)


def _gives(call: ast.Call, name: str, place: int | None) -> bool:
    return any(k.arg == name for k in call.keywords) or (place is not None and len(call.args) > place)
