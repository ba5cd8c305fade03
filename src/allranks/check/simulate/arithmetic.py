"""Operators on values: constants are computed, ranks and sizes are compared as the numbers that they can be."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from allranks.check.simulate.values import (
    ANYTHING,
    CLOCK,
    DATA,
    FALSE,
    NEXT,
    NONE,
    ORDER,
    RANDOM,
    TRUE,
    ByRole,
    Const,
    Either,
    Items,
    Library,
    Made,
    Table,
    Text,
    Unknown,
    Value,
    lift,
    number,
    taint,
    unknown,
)

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}
_LARGEST = 10_000  # texts and numbers beyond are not computed
_RANKS = ("global", "local", "node", "group")
_NUMBERS = (*_RANKS, "size")


def binary(op: ast.operator, left: Value, right: Value) -> Value:
    """Return ``left op right``."""
    if isinstance(op, ast.Mod | ast.FloorDiv) and left == number("global") and _is_size(right):
        return number("local" if isinstance(op, ast.Mod) else "node")
    return lift(lambda a, b: _binary(op, a, b), left, right)


def _is_size(value: Value) -> bool:
    return (isinstance(value, Unknown) and value.kind == "size") or (
        isinstance(value, Const) and isinstance(value.value, int)
    )


def _binary(op: ast.operator, left: Value, right: Value) -> Value:
    if isinstance(left, Const) and isinstance(right, Const):
        return _computed(_BINARY.get(type(op)), left.value, right.value)
    if isinstance(op, ast.Mod) and isinstance(left, Const | Text) and _shape(left) is not None:
        return Text(_filled(_shape(left) or ""), taint(left) | taint(right))
    if isinstance(op, ast.Add) and (_shape(left) is not None or _shape(right) is not None):
        return text(left, right)
    if isinstance(op, ast.Div) and (_is_path(left) or _is_path(right)):
        return joined(left, right)
    if isinstance(op, ast.Add | ast.Mult | ast.BitOr) and isinstance(left, Items) and isinstance(right, Items):
        return Items((*left.items, *right.items), left.kind)
    zero = isinstance(left, Const) and left.value == 0 and type(left.value) is int
    if zero and isinstance(op, ast.Mod | ast.FloorDiv | ast.Mult):
        return left
    if zero and isinstance(op, ast.Add):
        return right
    made = unknown(left, right)
    if made.taint & ORDER and isinstance(op, ast.Add) and isinstance(right, Const):
        return Unknown(made.taint | NEXT)
    if isinstance(op, ast.Sub) and isinstance(left, Unknown) and left.kind == "size" and right == Const(1):
        return Unknown(made.taint, true=True)  # there are two at least
    grows = isinstance(op, ast.Add) and any(isinstance(v, Unknown) and v.kind in _NUMBERS for v in (left, right))
    return Unknown(made.taint, true=True) if grows else made


def _computed(do: Callable[[Any, Any], Any] | None, left: Any, right: Any) -> Value:
    sizes = [len(v) if isinstance(v, str | bytes) else abs(v) if isinstance(v, int) else 0 for v in (left, right)]
    if do is None or max(sizes) > _LARGEST:
        return ANYTHING
    try:
        value = do(left, right)
    except (TypeError, ValueError, ArithmeticError):
        return ANYTHING
    return Const(value) if isinstance(value, bool | int | float | str | bytes) else ANYTHING


def _filled(shape: str) -> str:
    """Return a text with its ``%s`` as unknown parts."""
    parts = shape.split("%")
    return parts[0] + "".join("{}" + part.lstrip("-+0123456789.#")[1:] for part in parts[1:])


def _shape(value: Value) -> str | None:
    """Return a text's known parts; None for what is no text."""
    if isinstance(value, Const):
        return value.value if isinstance(value.value, str) else None
    return value.shape if isinstance(value, Text) else None


def _is_path(value: Value) -> bool:
    return (isinstance(value, Made) and value.cls == "pathlib.Path") or _shape(value) is not None


def shape_of(value: Value) -> str:
    """Return what is known of a text, or of a path, ``{}`` in the place of the rest."""
    if isinstance(value, Made) and value.about is not None:
        return shape_of(value.about)
    found = _shape(value)
    return str(value.value) if found is None and isinstance(value, Const) else "{}" if found is None else found


def text(*parts: Value) -> Value:
    """Return texts in a row as one."""
    shape = "".join(shape_of(part) for part in parts)
    found = unknown(*parts).taint
    if all(isinstance(part, Const) for part in parts) and len(shape) <= _LARGEST:
        return Const(shape)
    return Text(shape[:_LARGEST], found)


def joined(*parts: Value) -> Value:
    """Return a path: its parts with "/" between them; an absolute part drops what is before."""
    kept: list[Value] = []
    for part in parts:
        if isinstance(part, Const) and isinstance(part.value, str) and part.value.startswith("/"):
            kept = []
        kept.append(part)
    shape, found = "/".join(shape_of(part).rstrip("/") for part in kept), unknown(*kept).taint
    inside: Value = Const(shape) if all(isinstance(part, Const) for part in kept) else Text(shape, found)
    made = any(isinstance(part, Made) for part in parts)
    return Made("pathlib.Path", found, inside) if made else inside


def unary(op: ast.unaryop, value: Value) -> Value:
    """Return ``-value``, ``+value``, ``~value``."""

    def do(one: Value) -> Value:
        if isinstance(one, Const) and isinstance(one.value, int | float) and isinstance(op, ast.USub):
            return Const(-one.value)
        return one if isinstance(op, ast.UAdd) else unknown(one)

    return lift(do, value)


def compare(op: ast.cmpop, left: Value, right: Value) -> Value:
    """Return ``left op right``. An answer that picks ranks is of kind "which": whether a number is that of the rank, or
    what some ranks have counted where it is constant for the others."""
    if isinstance(left, Unknown) and left.name == "gpu" and right == Const(0) and isinstance(op, ast.Eq | ast.NotEq):
        left = number("local")
    picks = number("global") in (left, right) and isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn)
    picks = picks or any(isinstance(one, ByRole) and _is_counted(one) for one in (left, right))

    def do(a: Value, b: Value) -> Value:
        found = _compare(op, a, b)
        return Unknown(found.taint, kind="which") if picks and isinstance(found, Unknown) else found

    return lift(do, left, right)


def _is_counted(value: ByRole) -> bool:
    constant = {isinstance(one, Const) for one in value.roles}
    is_rank = any(isinstance(one, Unknown) and one.kind in _RANKS for one in value.roles)
    return len(constant) == 2 and not is_rank and NONE not in value.roles


def _compare(op: ast.cmpop, left: Value, right: Value) -> Value:
    if isinstance(op, ast.Is | ast.IsNot):
        return _negated(op, _same(left, right), ast.IsNot)
    if isinstance(op, ast.In | ast.NotIn):
        return _negated(op, _contained(left, right), ast.NotIn)
    if isinstance(left, Const) and isinstance(right, Const):
        if {type(left.value), type(right.value)} == {int, str}:  # a variable of the environment is a text
            left, right = Const(str(left.value)), Const(str(right.value))
        return _computed(_COMPARE[type(op)], left.value, right.value)
    if NONE in (left, right) and isinstance(op, ast.Eq | ast.NotEq):
        return _negated(op, _same(left, right), ast.NotEq)
    if isinstance(right, Unknown) and isinstance(left, Const):
        flipped = _FLIPPED.get(type(op), type(op))
        return _bounded(flipped(), right, left)
    if isinstance(left, Unknown) and isinstance(right, Const):
        return _bounded(op, left, right)
    if isinstance(left, Library) and isinstance(right, Library) and isinstance(op, ast.Eq | ast.NotEq):
        return Const((left == right) == isinstance(op, ast.Eq))
    return unknown(left, right)


def _negated(op: ast.cmpop, value: Value, negative: type[ast.cmpop]) -> Value:
    return Const(not value.value) if isinstance(value, Const) and isinstance(op, negative) else value


def _bounded(op: ast.cmpop, left: Unknown, right: Const) -> Value:
    """Compare a number of which the least is known: a rank that is not 0, or how many processes there are."""
    least = 2 if left.kind == "size" else 1 if left.kind in _RANKS or left.true else None
    limit = int(right.value) if isinstance(right.value, str) and right.value.isdigit() else right.value
    if least is None or isinstance(limit, str | bytes) or limit is None:
        return Unknown(left.taint)
    if isinstance(op, ast.Eq) and limit < least:
        return FALSE
    if isinstance(op, ast.NotEq) and limit < least:
        return TRUE
    if (isinstance(op, ast.Gt) and limit < least) or (isinstance(op, ast.GtE) and limit <= least):
        return TRUE
    if (isinstance(op, ast.Lt) and limit <= least) or (isinstance(op, ast.LtE) and limit < least):
        return FALSE
    return Unknown(left.taint)


def _same(left: Value, right: Value) -> Value:
    if isinstance(left, Const) and isinstance(right, Const):
        return Const(left == right)
    for one, other in ((left, right), (right, left)):
        if one == NONE:
            if isinstance(other, Either):
                is_there = all(_same(option, NONE) == FALSE for option in other.options)
                return FALSE if is_there else Unknown(unknown(other).taint & ~DATA)
            known = not isinstance(other, Unknown) or other.true or other.kind
            return FALSE if known else Unknown(taint(other) & ~DATA)  # rows decide what it is, not whether
    return unknown(left, right)


def _contained(item: Value, container: Value) -> Value:
    if isinstance(container, Items):
        found = [_compare(ast.Eq(), item, one) for one in container.items]
        if TRUE in found:
            return TRUE
        return FALSE if all(one == FALSE for one in found) else unknown(item, container)
    if isinstance(item, Const) and isinstance(container, Const):
        return _computed(lambda a, b: a in b, item.value, container.value)
    if isinstance(item, Const) and isinstance(item.value, str) and isinstance(container, Text):
        return TRUE if any(item.value in part for part in container.shape.split("{}")) else unknown(container)
    if isinstance(container, Unknown | Table):  # which keys there are does not depend on their values
        return unknown(item, Unknown(taint(container) & ~(DATA | CLOCK | RANDOM)))
    return unknown(item, container)
