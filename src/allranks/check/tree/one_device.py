"""What one device computes of its part of the batch, and the host takes for that of all: ``loss[0]`` of a pmap."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import function_called, reached, values
from allranks.check.tree.syntax import Function, calls_of, function_of, own, speaks_of, tail_of

_SCORES = re.compile(r"metric|loss|acc|score", re.IGNORECASE)
_REDUCES = re.compile(
    r"pmean|psum|pmax|pmin|gather|reduce|sync|cross_(device|replica|host)|avg|average|mean_over|merge", re.IGNORECASE
)
# What is reduced for the step itself.
_LEARNT = re.compile(r"grad|update|stats|param|state|weight|^g$|rng|key", re.IGNORECASE)
_LIBRARIES = ("jax", "jnp", "numpy", "optax", "flax", "functools", "chex", "haiku")
# Functions of other files that compute a number of what they are given, and methods that run a model.
_PLAIN = re.compile(r"loss|entropy|accuracy|nll|mse|apply|forward|^fwd|logits|grad_fn|value_and_grad", re.IGNORECASE)
_OF_ARRAYS = ("mean", "sum", "argmax", "astype", "reshape", "items", "get", "split")
_FIRST = ("unreplicate", "unpmap", "get_first", "get_metrics")


class Taken(NamedTuple):
    """``value``: what is returned of each device; ``use``: where the host takes that of the first one."""

    value: ast.expr
    use: ast.AST
    computed: ast.AST | None


def taken_for_all(function: Function, file: File) -> Taken | None:
    """Return what a function that runs on each device returns unreduced, if the host takes it from one device."""
    names = _mapped(file).get(function.name, ())
    returned = [at.value for at in own(function) if isinstance(at, ast.Return) and at.value is not None]
    if not names or len(returned) != 1:
        return None
    parts = _parts(returned[0])
    for place, part in enumerate(parts):
        if speaks_of(part, _SCORES) and _is_own(part, function, file):
            use = next((use for name in names for use in _uses(name, place, len(parts), file)), None)
            if use is not None:
                return Taken(part, use, _computed(part, file))
    return None


def _mapped(file: File) -> dict[str, tuple[str, ...]]:
    return file.once("mapped names", file.tree, lambda _: _all_mapped(file))


def _all_mapped(file: File) -> dict[str, tuple[str, ...]]:
    """Return the names by which a file calls a function once it is mapped over the devices, by its own name."""
    found: dict[str, tuple[str, ...]] = {}
    for call in calls_of(file).get("pmap", ()):
        above, given = next(file.parents(call), None), call.args[0] if call.args else None
        while isinstance(given, ast.Call) and tail_of(given) == "partial" and given.args:
            given = given.args[0]
        if isinstance(given, ast.Name) and isinstance(above, ast.Assign):
            found[given.id] = (*found.get(given.id, ()), tail_of(above.targets[0]))
    for node in file.kinds.get(ast.FunctionDef, ()):
        if isinstance(node, ast.FunctionDef) and any("pmap" in ast.unparse(at) for at in node.decorator_list):
            found[node.name] = (node.name,)
    return found


def _is_own(part: ast.expr, function: Function, file: File) -> bool:
    """It is computed here, or by functions that are known, and nothing but gradients and the like is reduced."""
    calls = [at for at in walk(function) if isinstance(at, ast.Call)]
    below = [called for call in calls if (called := function_called(call, file)) is not None]
    calls += [at for called in below for at in walk(called) if isinstance(at, ast.Call)]
    reducing = (call for call in calls if _REDUCES.search(tail_of(call)))
    reduced = (one for call in reducing for one in call.args[:1] or [k.value for k in call.keywords])
    if not all(speaks_of(part, _LEARNT) for one in reduced for part in _parts(one)):
        return False
    made = (at for one in (part, *values(part, file)) for at in walk(one) if isinstance(at, ast.Call))
    return all(_is_known(call, file) for call in made)


def _parts(whole: ast.expr) -> Sequence[ast.expr]:
    return whole.elts if isinstance(whole, ast.Tuple | ast.List) else (whole,)


def _is_known(call: ast.Call, file: File) -> bool:
    name = file.qualified(call.func) or ""
    if name.partition(".")[0] in _LIBRARIES or function_called(call, file) is not None:
        return True
    if isinstance(call.func, ast.Call):
        return _is_known(call.func, file)
    return bool(_PLAIN.search(tail_of(call))) or tail_of(call) in _OF_ARRAYS


def _uses(name: str, place: int, count: int, file: File) -> Iterator[ast.AST]:
    """Yield where the host takes the first of what each device returned at a place."""
    for call in calls_of(file).get(name, ()):
        statement = next((above for above in file.parents(call) if isinstance(above, ast.stmt)), None)
        target = statement.targets[0] if isinstance(statement, ast.Assign) and statement.value is call else None
        if count > 1:
            target = target.elts[place] if isinstance(target, ast.Tuple) and len(target.elts) == count else None
        if isinstance(target, ast.Name):
            nodes = own(function_of(call, file) or file.tree)
            names = {target.id, *_collected(target.id, nodes)}
            yield from (at for at in nodes if _takes_first(at, names))


def _collected(name: str, nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the lists that something is appended to."""
    calls = (at for at in nodes if isinstance(at, ast.Call) and tail_of(at) == "append")
    for call in calls:
        kept = any(isinstance(one, ast.Name) and one.id == name for one in call.args)
        if kept and isinstance(call.func, ast.Attribute):
            yield ast.unparse(call.func.value)


def _takes_first(node: ast.AST, names: set[str]) -> bool:
    """``loss[0]``, ``unreplicate(metrics)``, ``tree_map(lambda x: x[0], metrics)``"""
    if isinstance(node, ast.Subscript):
        return _is_zero(node.slice) and ast.unparse(node.value) in names
    if not isinstance(node, ast.Call) or not any(ast.unparse(one) in names for one in node.args):
        return False
    return tail_of(node) in _FIRST or (tail_of(node) in ("tree_map", "map") and _is_first(node.args[0]))


def _is_zero(index: ast.expr) -> bool:
    return isinstance(index, ast.Constant) and index.value == 0 and index.value is not False


def _is_first(function: ast.expr) -> bool:
    """``lambda x: x[0]``"""
    body = function.body if isinstance(function, ast.Lambda) else None
    return isinstance(body, ast.Subscript) and isinstance(body.value, ast.Name) and _is_zero(body.slice)


def _computed(part: ast.expr, file: File) -> ast.AST | None:
    """Return the end of the function of this file that computes it, if one does."""
    calls = (at for one in reached(part, file) for at in walk(one) if isinstance(at, ast.Call))
    functions = (called for call in calls if (called := function_called(call, file)) is not None)
    return next((called.body[-1] for called in functions), None)
