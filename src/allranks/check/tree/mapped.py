"""What JAX runs once on each device: the function that pmap or shard_map is given, and how its arguments come."""

from __future__ import annotations

import ast
from typing import TypeAlias

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import function_called, values
from allranks.check.tree.syntax import class_of, keyword, name_of, tail_of

MAPS = ("jax.shard_map", "jax.experimental.shard_map.shard_map", "jax.pmap")
_PARTIAL = "functools.partial"
_SPECS = ("P", "PartitionSpec")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MOST = 4
Mapped: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def mapped(maps: ast.Call, file: File) -> Mapped | None:
    """Return the function that is mapped: given first, bare or in a partial, or below ``@partial(shard_map, ...)``."""
    above = next(file.parents(maps), None)
    if isinstance(above, _FUNCTIONS) and maps in above.decorator_list:
        return above
    return _meant(maps.args[0], file, _MOST) if maps.args else None


def _meant(given: ast.expr, file: File, most: int) -> Mapped | None:
    if isinstance(given, ast.Call) and name_of(given, file) == _PARTIAL and given.args:
        given = given.args[0]
    if isinstance(given, ast.Lambda):
        return given
    if isinstance(given, ast.Attribute):
        return _method(given, file)
    if not isinstance(given, ast.Name):
        return None
    around = (at for scope in file.parents(given) if isinstance(scope, (*_FUNCTIONS, ast.If)) for at in scope.body)
    inside = next((at for at in around if isinstance(at, _FUNCTIONS) and at.name == given.id), None)
    found = inside or function_called(ast.Call(given, [], []), file)
    stored = values(given, file) if found is None and most else []
    return _meant(stored[0], file, most - 1) if len(stored) == 1 else found


def _method(given: ast.Attribute, file: File) -> Mapped | None:
    """``jax.pmap(self._update)``"""
    owner = class_of(given, file)
    if owner is None or not isinstance(given.value, ast.Name) or given.value.id not in ("self", owner.name):
        return None
    return next((at for at in owner.body if isinstance(at, _FUNCTIONS) and at.name == given.attr), None)


def parts(maps: ast.Call, file: File) -> list[str]:
    """Return how each argument comes to the devices: ``cut``, ``whole``, or nobody knows (empty)."""
    found = keyword(maps, "in_specs") or keyword(maps, "in_axes")
    if isinstance(found, ast.Name) and len(stored := values(found, file)) == 1:
        found = stored[0]
    return [how(part, file) for part in found.elts] if isinstance(found, ast.Tuple | ast.List) else []


def how(spec: ast.expr | None, file: File) -> str:
    """``P("data")`` and 0 cut; ``P()`` and None leave whole."""
    if isinstance(spec, ast.Constant):
        return "whole" if spec.value is None else "cut"
    if isinstance(spec, ast.Name | ast.Attribute) and len(stored := values(spec, file)) == 1:
        spec = stored[0]
    if isinstance(spec, ast.Tuple):
        return "cut" if any(how(part, file) == "cut" for part in spec.elts) else ""
    if not isinstance(spec, ast.Call) or tail_of(spec) not in _SPECS:
        return ""
    return (
        "cut"
        if any(isinstance(at, ast.Constant) and isinstance(at.value, str) for at in walk(spec))
        else ("" if spec.args else "whole")
    )
