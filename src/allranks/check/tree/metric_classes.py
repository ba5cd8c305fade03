"""Metric classes whose framework brings together what is kept under some names, and which keep more under others.

torchmetrics brings together what `add_state` has named, mmengine what is in ``results``; evaluators of detectron2 bring
together themselves what they have.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import function_called
from allranks.check.tree.skips import AGREES
from allranks.check.tree.syntax import is_constant, own, places_in, tail_of

_FILLS = ("append", "extend")
# Who says so brings its parts together by itself, or keeps them apart on purpose.
_BY_ITSELF = re.compile(rf"{AGREES.pattern}|world_size|sync|all_ranks|collect")


class _Kind(NamedTuple):
    """``tells``, ``asks``: the methods that are told of a batch, and asked for the number; ``kept``: what is brought
    together without being named."""

    package: str
    tells: str
    asks: str
    kept: tuple[str, ...] = ()


# By the names of their bases.
_KINDS: Mapping[re.Pattern[str], _Kind] = {
    re.compile(r"^Metric$"): _Kind("torchmetrics", "update", "compute"),
    re.compile(r"^Base\w*Metric$"): _Kind("mmengine", "process", "compute_metrics", ("results",)),
    re.compile(r"^DatasetEvaluator$"): _Kind("detectron2", "process", "evaluate"),
}


class Left(NamedTuple):
    """``name``: what a metric keeps of its process' part alone; ``filled``: where it is added to; ``read``: where the
    number is made of it."""

    name: str
    read: ast.AST
    filled: ast.AST


def left_apart(owner: ast.ClassDef, file: File) -> Left | None:
    """Return what a metric class is told of each batch and asked for, but its framework never brings together."""
    kind = _kind_of(owner, file)
    methods = {at.name: at for at in owner.body if isinstance(at, ast.FunctionDef)}
    if kind is None or kind.tells not in methods or kind.asks not in methods:
        return None
    named = _states(owner) if kind.package == "torchmetrics" else frozenset(kind.kept)
    if named is None or any(_BY_ITSELF.search(word) for at in methods.values() for word in _said(at)):
        return None
    filled = {name: at for name, at in _filled(methods[kind.tells], file) if name.rpartition(".")[2] not in named}
    for at in _nodes(methods[kind.asks], file) if filled else ():
        if isinstance(at, ast.Attribute) and isinstance(at.ctx, ast.Load) and (name := ast.unparse(at)) in filled:
            return Left(name, at, filled[name])
    return None


def _kind_of(owner: ast.ClassDef, file: File) -> _Kind | None:
    found = (kind for base in owner.bases for name, kind in _KINDS.items() if name.search(tail_of(base)))
    return next((kind for kind in found if kind.package in file.text), None)


def _said(method: ast.FunctionDef) -> Iterator[str]:
    """Yield the names of what a method calls, and what it turns off there."""
    for call in (at for at in own(method) if isinstance(at, ast.Call)):
        yield tail_of(call)
        yield from (str(k.arg) for k in call.keywords if is_constant(k.value, False))


def _states(owner: ast.ClassDef) -> frozenset[str] | None:
    """Return the names that are given to ``add_state``; None where these are computed."""
    calls = (at for at in walk(owner) if isinstance(at, ast.Call) and tail_of(at) == "add_state")
    given = [at.args[0] if at.args else next((k.value for k in at.keywords if k.arg == "name"), None) for at in calls]
    names = [at.value for at in given if isinstance(at, ast.Constant)]
    return frozenset(map(str, names)) if len(names) == len(given) else None


def _filled(method: ast.FunctionDef, file: File) -> Iterator[tuple[str, ast.AST]]:
    """Yield the attributes to which a method, or one that it calls, adds something of what it is given."""
    for at in _nodes(method, file):
        if isinstance(at, ast.Call) and isinstance(at.func, ast.Attribute) and at.func.attr in _FILLS and at.args:
            yield from _attribute(at.func.value, at)
        elif isinstance(at, ast.AugAssign) and isinstance(at.op, ast.Add) and not isinstance(at.value, ast.Constant):
            yield from _attribute(at.target, at)
        elif isinstance(at, ast.Assign) and (named := list(_attribute(at.targets[0], at))):
            yield from (one for one in named if one[0] in places_in(at.value))


def _attribute(node: ast.expr, at: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        yield ast.unparse(node), at


def _nodes(method: ast.FunctionDef, file: File) -> Iterator[ast.AST]:
    """Yield the nodes of a method, and of those of its class that it calls."""
    waiting, seen = [method], {method}
    while waiting:
        for at in own(waiting.pop(0)):
            yield at
            below = function_called(at, file) if isinstance(at, ast.Call) else None
            if isinstance(below, ast.FunctionDef) and below not in seen:
                seen.add(below)
                waiting.append(below)
