"""What a number of a JAX program counts: the devices of all processes, those of this one, or processes.

A number is followed through names, attributes of ``self``, parameters (to what this file passes), helper functions of
this file, and arithmetic: what is divided by all devices and multiplied with those of this process is divided by the
number of processes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import function_called, may_be_skipped, passed, values
from allranks.check.tree.syntax import Function, function_of, name_of, own

DEVICES, OWN_DEVICES = "jax.devices", "jax.local_devices"
DEEPEST = 8
# Calls that return a number as it is.
_ROUNDED = frozenset(["int", "float", "round", "abs", "math.ceil", "math.floor", "numpy.int32", "numpy.int64"])
_LISTED = frozenset(["list", "tuple", "sorted", "reversed", "enumerate", "numpy.array", "numpy.asarray", "set"])
Whose = Literal["all", "own"]


@dataclass(frozen=True, slots=True)
class Scale:
    """A number is ``own`` times multiplied with the devices of a process (negative: divided by them), ``processes``
    times with the number of processes. ``pure``: it is nothing else. ``source``: where a count was asked for."""

    own: int
    processes: int
    pure: bool = False
    source: ast.expr | None = field(default=None, compare=False)

    @property
    def all_devices(self) -> bool:
        """It is the number of devices of all processes."""
        return self.pure and (self.own, self.processes) == (1, 1)

    @property
    def of_all(self) -> bool:
        """It grows with the number of processes, and is not their number alone: a size of what all have together."""
        return self.processes > 0 and self.own > 0 and not self.pure


_COUNTS = {"jax.device_count": (1, 1), "jax.local_device_count": (1, 0), "jax.process_count": (0, 1)}


def scale(node: ast.AST | None, file: File) -> Scale | None:
    """Return what counts a number is made of; None if there are none, or nobody knows which."""
    return _scale(node, file, frozenset(), 0)


def _scale(node: ast.AST | None, file: File, seen: frozenset[int], depth: int) -> Scale | None:
    if node is None or depth > DEEPEST:
        return None
    if isinstance(node, ast.Call):
        return _of_call(node, file, seen, depth + 1)
    if isinstance(node, ast.BinOp):
        one, other = (_scale(side, file, seen, depth + 1) for side in (node.left, node.right))
        return _combined(one, other, node.op)
    if isinstance(node, ast.IfExp):
        return _agreed([_scale(side, file, seen, depth + 1) for side in (node.body, node.orelse)])
    if isinstance(node, ast.BoolOp):
        return _agreed([_scale(side, file, seen, depth + 1) for side in node.values])
    if isinstance(node, ast.Name | ast.Attribute):
        return _of_name(node, file, seen, depth + 1)
    return None


def _combined(one: Scale | None, other: Scale | None, operation: ast.operator) -> Scale | None:
    if one is None and other is None:
        return None
    left, right = one or Scale(0, 0), other or Scale(0, 0)
    sign = 1 if isinstance(operation, ast.Mult) else -1
    if not isinstance(operation, ast.Mult | ast.FloorDiv | ast.Div):
        return None
    pure = left.pure and right.pure
    made = Scale(left.own + sign * right.own, left.processes + sign * right.processes, pure, left.source)
    return replace(made, source=right.source) if left.source is None else made


def _agreed(found: list[Scale | None]) -> Scale | None:
    """Of several ways to a number those that count something; None if they count differently."""
    counted = {one for one in found if one is not None}
    return next(iter(counted)) if len(counted) == 1 else None


def _of_call(call: ast.Call, file: File, seen: frozenset[int], depth: int) -> Scale | None:
    name = name_of(call, file)
    if name in _COUNTS:
        own_part, processes = _COUNTS[name]
        return Scale(own_part, processes, pure=True, source=call)
    if name == "len" and len(call.args) == 1:
        whose = devices_of(call.args[0], file) if not is_of_hosts(call) else None
        return Scale(1, int(whose == "all"), pure=True, source=call) if whose else None
    if (name in _ROUNDED or name in ("max", "min")) and call.args:
        return _agreed([_scale(argument, file, seen, depth) for argument in call.args])
    function = function_called(call, file)
    if function is None or id(function) in seen:
        return None
    returned = [at.value for at in own(function) if isinstance(at, ast.Return) and at.value is not None]
    found = [_scale(value, file, seen | {id(function)}, depth) for value in returned]
    return _agreed(found) if found and None not in found else None


def _of_name(node: ast.Name | ast.Attribute, file: File, seen: frozenset[int], depth: int) -> Scale | None:
    stored = [value for value in values(node, file) if id(value) not in seen]
    function = function_of(node, file)
    if stored and function is not None and function in file.parents(stored[0]):
        line = getattr(node, "lineno", 0)
        # What stands later does not count yet, but in a loop.
        stored = [value for value in stored if value.lineno <= line] or stored
    if not stored:
        return _of_parameter(node, file, seen, depth)
    found: Scale | None = None
    ways: list[Scale | None] = []
    for value in stored:
        above = next(file.parents(value), None)
        made = _scale(value, file, seen | {id(value)}, depth)
        if isinstance(above, ast.AugAssign):
            found = _combined(found or _of_parameter(node, file, seen, depth), made, above.op)
            ways = [found]
        elif isinstance(above, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.Tuple) and _is_whole(value, above):
            found = made
            ways = [found] if not may_be_skipped(value, file) else [*ways, found]
        else:
            return None
    return _agreed(ways)


def _is_whole(value: ast.expr, above: ast.AST) -> bool:
    """The name gets all of ``value``, not a part of it."""
    targets = above.targets if isinstance(above, ast.Assign) else []
    return isinstance(value, ast.Tuple) or not any(isinstance(target, ast.Tuple | ast.List) for target in targets)


def _of_parameter(node: ast.Name | ast.Attribute, file: File, seen: frozenset[int], depth: int) -> Scale | None:
    if not isinstance(node, ast.Name):
        return None
    given = [value for value in passed(node, file) if id(value) not in seen]
    default = default_of(node, file)
    ways = [_scale(value, file, seen | {id(value)}, depth) for value in (*given, *default)]
    unknown = any(way is None and not isinstance(v, ast.Constant) for way, v in zip(ways, given, strict=False))
    return None if unknown else _agreed(ways)


def default_of(node: ast.Name, file: File) -> list[ast.expr]:
    """Return the default of the parameter that ``node`` names, if it has one."""
    for scope in (p for p in file.parents(node) if isinstance(p, ast.FunctionDef | ast.AsyncFunctionDef)):
        plain = [*scope.args.posonlyargs, *scope.args.args]
        pairs = [*zip(plain[::-1], scope.args.defaults[::-1], strict=False)]
        pairs += [(a, d) for a, d in zip(scope.args.kwonlyargs, scope.args.kw_defaults, strict=True) if d is not None]
        if any(a.arg == node.id for a in (*plain, *scope.args.kwonlyargs)):
            return [default for argument, default in pairs if argument.arg == node.id]
    return []


def devices_of(node: ast.AST | None, file: File, depth: int = 0) -> Whose | None:
    """Say whose devices a list holds: those of all processes, or this process' own; None for anything else."""
    if node is None or depth > DEEPEST:
        return None
    if isinstance(node, ast.Call):
        name = name_of(node, file)
        if name == DEVICES:
            return "all"
        if name == OWN_DEVICES:
            return "own"
        if name in _LISTED and node.args:
            return devices_of(node.args[0], file, depth + 1)
        return None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        return devices_of(node.value, file, depth + 1)
    if isinstance(node, ast.Name | ast.Attribute):
        stored = values(node, file) or passed(node, file)
        whose = {devices_of(value, file, depth + 1) for value in stored if _is_stored_whole(value, file)}
        return whose.pop() if len(whose) == 1 and len(stored) > 0 else None
    return None


def is_of_hosts(asked: ast.AST) -> bool:
    """Say whether CPUs are asked for: ``jax.devices("cpu")``."""
    return any(isinstance(at, ast.Constant) and at.value == "cpu" for at in walk(asked))


def _is_stored_whole(value: ast.expr, file: File) -> bool:
    above = next(file.parents(value), None)
    return not isinstance(above, ast.For | ast.AsyncFor | ast.comprehension)


def device_of(node: ast.AST, file: File) -> Whose | None:
    """Say whose device this is: one of a list (by a constant index), or what goes through a list in a loop."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant | ast.UnaryOp):
        return devices_of(node.value, file)
    if isinstance(node, ast.Name | ast.Attribute):
        whose = {_one_of(value, node, file) for value in values(node, file)}
        return whose.pop() if len(whose) == 1 else None
    return None


def _one_of(value: ast.expr, name: ast.Name | ast.Attribute, file: File) -> Whose | None:
    if not _is_stored_whole(value, file):
        return devices_of(_zipped(value, name, file), file)
    return device_of(value, file) if isinstance(value, ast.Subscript) else None


def _zipped(value: ast.expr, name: ast.Name | ast.Attribute, file: File) -> ast.expr:
    """Return the list of ``for x, device in zip(xs, devices)`` that a name goes through; others as they are."""
    target = getattr(next(file.parents(value), None), "target", None)
    if isinstance(value, ast.Call) and name_of(value, file) == "zip" and isinstance(target, ast.Tuple):
        pairs = zip(target.elts, value.args, strict=False)
        return next((given for at, given in pairs if ast.unparse(at) == ast.unparse(name)), value)
    return value


def mapped(file: File) -> bool:
    """Say whether this file gives arrays to pmap, which takes one row for each device of this process."""
    return "pmap" in file.text or "jax_utils" in file.text or "common_utils" in file.text


def meshed(file: File) -> bool:
    """Say whether this file works with arrays that lie on the devices of all processes."""
    return any(word in file.text for word in ("Mesh(", "shard_map", "pjit", "NamedSharding", "make_mesh", "xmap"))


def is_mapped(function: ast.expr, file: File, depth: int = 0) -> bool:
    """Say whether a function is the result of pmap: called here, by a decorator, or by what made it."""
    if depth > DEEPEST:
        return False
    if isinstance(function, ast.Call):
        if _pmaps(function, file):
            return True
        made_by = function_called(function, file)
        returned = [at.value for at in own(made_by) if isinstance(at, ast.Return)] if made_by is not None else []
        return any(value is not None and is_mapped(value, file, depth + 1) for value in returned)
    if isinstance(function, ast.Name) and (defined := _defined(function, file)) is not None:
        return any(_pmaps(decorator, file) for decorator in defined.decorator_list)
    return any(is_mapped(v, file, depth + 1) for v in values(function, file) if isinstance(v, ast.Call | ast.Name))


def _pmaps(node: ast.expr, file: File) -> bool:
    names = [name_of(node, file)]
    if isinstance(node, ast.Call) and names == ["functools.partial"] and node.args:
        names.append(name_of(node.args[0], file))
    return any(name.endswith("pmap") for name in names)


def _defined(name: ast.Name, file: File) -> Function | None:
    """Return the function of that name: one of those around, or of the module."""
    for scope in (*file.parents(name),):
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            for at in _definitions(scope):
                if at.name == name.id:
                    return at
    return None


def _definitions(scope: ast.AST) -> Iterator[Function]:
    return (at for at in own(scope) if isinstance(at, ast.FunctionDef | ast.AsyncFunctionDef))
