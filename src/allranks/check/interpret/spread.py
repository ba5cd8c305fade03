"""Arrays of JAX that lie on the devices of all processes: how one lies, and what is computed from it. Pure, but for the
meeting that a computation is put down as."""

from __future__ import annotations

from collections.abc import Iterable

from allranks.check.interpret.state import Frame, Span
from allranks.check.interpret.truth import EVERY, FALSE
from allranks.check.interpret.values import AGREED, ANYTHING, NONE, OWN, PRIVATE, RANK, Value, known, replace, tainted
from allranks.check.summaries.summary import Node
from allranks.check.tables.arrays import ABOUT, COMPUTING, EAGER, ELEMENTWISE, LOCAL_VIEWS, OTHER_VIEWS

# Flags of an array, or of a tree of them: it lies on all processes; each has a part of it, not the whole (as of what is
# replicated); these are rows of it; and it is one array for certain.
SPREAD, PARTS = frozenset({"spread"}), frozenset({"spread", "parts"})
ROWS, ARRAY = frozenset({"rows"}), frozenset({"array"})
LYING = PARTS | ROWS | ARRAY
SPREAD_VALUE, PARTS_VALUE = Value(flags=SPREAD), Value(flags=PARTS)
# Flags of what says how an array lies (`computed`).
LAYOUT = frozenset({"cut", "whole"})
TOLD = LAYOUT | ROWS | {"here"}
# The flag of a dictionary, or of a state with fields, of which some are spread, or say how something is to lie: its
# elements are pairs of a name and a value.
KEYED = frozenset({"keyed"})
_ORDERED = frozenset(["<", "<=", ">", ">=", "==", "!="])


def in_parts(*values: Value) -> bool:
    """Whether one of them is an array of which this process certainly has but a part."""
    return any("parts" in value.flags for value in values)


def is_spread(values: Iterable[Value]) -> frozenset[str]:
    """Return the flags of what holds such values: where all are in parts, so is it."""
    flags = [value.flags for value in values]
    if not any(each >= SPREAD for each in flags):
        return frozenset()
    return PARTS if all("parts" in each for each in flags) else SPREAD


def lying(value: Value) -> Value:
    """Return no more of the result of a compiled function than how it lies."""
    if value.flags & KEYED:
        return entries((name, lying(kept)) for name, kept in pairs(value)) or SPREAD_VALUE
    if value.elements is not None:
        elements = tuple(map(lying, value.elements))
        return Value(elements=elements, flags=is_spread(elements) or SPREAD)
    return Value(flags=value.flags & LYING) if in_parts(value) else SPREAD_VALUE


def entries(given: Iterable[tuple[Value, Value]]) -> Value | None:
    """Return a dictionary of these; None if nothing in it is spread, or says how something is to lie."""
    kept = tuple(given)
    flags = is_spread(value for _, value in kept)
    told = flags or any(value.flags & (LAYOUT | KEYED) for _, value in kept)
    return Value(elements=tuple(Value(elements=pair) for pair in kept), flags=flags | KEYED) if told else None


def leaf(value: Value) -> Value:
    """Return any one of the arrays of a tree."""
    return Value(value.taint, flags=value.flags - KEYED) if value.flags & KEYED else value


def enter(frame: Frame, target: Node, base: Value, key: object, value: Value) -> None:
    """Store what is spread, or anything beside it, in a dictionary that has a name."""
    if target[0] != "name" or not isinstance(key, str) or not (base.flags | value.flags) & SPREAD:
        return
    if base.flags & SPREAD and not base.flags & KEYED:  # a tree of which nobody knows what is in it
        frame.env[target[1]] = base if in_parts(value) else SPREAD_VALUE
        return
    others = [(name, kept) for name, kept in pairs(base) if name.constant != key]
    frame.env[target[1]] = entries((*others, (Value(constant=key), value))) or ANYTHING


def _kept(base: Value, key: object) -> Value:
    """Return what is kept in a dictionary under a key, or in a state in a field."""
    found = (value for name, value in pairs(base) if name.constant == key)
    return next(found, Value(flags=base.flags & PARTS))


def pairs(base: Value) -> list[tuple[Value, Value]]:
    """Return what is in a dictionary."""
    found = [one.elements for one in base.elements or () if one.elements is not None]
    return [(name, value) for name, value in found]


def merged(base: Value, given: Iterable[tuple[str, Value]]) -> Value:
    """Return a state with other fields."""
    others = {name: (Value(constant=name), value) for name, value in given}
    return entries((*[pair for pair in pairs(base) if pair[0].constant not in others], *others.values())) or ANYTHING


def created(function: Node, given: Iterable[tuple[str, Value]]) -> Value | None:
    """Return the state that a call makes of these fields; None if nothing in it is spread."""
    makes = function[0] == "attr" and function[2] == "create"
    return entries((Value(constant=name), value) for name, value in given) if makes else None


def streamed(value: Value, roles: int) -> Value:
    """Return what a generator gives that yields such values to these roles, and nothing to others."""
    if roles != EVERY:
        return Value(RANK, truth="".join("W" if roles >> at & 1 else "F" for at in range(4)), none=FALSE)
    return Value(flags=value.flags & (PARTS | ROWS)) if value.flags & SPREAD else NONE


def unpacked(value: Value, of: int = -1) -> Value:
    """Return one of those that ``value`` is taken apart into: a row of an array may lie anyhow. ``of``: the bits of
    what it depends on."""
    if not (value.taint or value.flags):
        return ANYTHING
    kept = SPREAD if value.flags & ARRAY else PARTS | ROWS
    return Value(value.taint & of, flags=value.flags & (kept | PRIVATE | AGREED.flags))


def each(value: Value) -> Value:
    """Return one of those that a comprehension goes through."""
    if value.flags & SPREAD:
        return unpacked(value)
    return replace(tainted(value), flags=value.flags & OWN) if value.flags & OWN else tainted(value)


def compute(frame: Frame, name: str, span: Span) -> None:
    """Put down that what is computed here, all processes must compute."""
    frame.nodes.append(("meet", EAGER, "hidden", span, name))


def operated(frame: Frame, left: Value, symbol: str, right: Value, node: Node) -> Value | None:
    """Return what an operator gives of an array in parts; None of all else."""
    if not in_parts(left, right) or isinstance(left.constant, str) or left.elements is not None:
        return None
    compute(frame, symbol, _span_of(frame, node))
    rows = ROWS & left.flags if symbol in ("@", "?") else ROWS & (left.flags | right.flags)
    if symbol in ("@", "?") and (not rows or in_parts(right)):
        return Value(flags=SPREAD | ARRAY)
    return Value(flags=PARTS | ARRAY | rows)


def compared(frame: Frame, left: Value, symbol: str, right: Value, node: Node) -> Value | None:
    """Return what a comparison gives of an array in parts; None of all else."""
    if symbol not in _ORDERED or None in (left.constant, right.constant) or isinstance(right.constant, str):
        return None
    return operated(frame, left, symbol, right, node)


def item(frame: Frame, base: Value, node: Node, index: Value) -> Value | None:
    """Return what is at an index of an array in parts, or under a key of a dictionary of such; None of all else."""
    if base.flags & KEYED:
        return _kept(base, index.constant)
    at = node[2]
    sliced = at[0] == "many" or (at[0] == "seq" and any(part[0] == "many" for part in at[1]))
    one = isinstance(index.constant, int) or index.constant is None or index.constant is ...
    if not in_parts(base) or base.elements is not None or not (sliced or (one and base.flags & ARRAY)):
        return None
    compute(frame, "[]", _span_of(frame, node))
    return Value(flags=(base.flags & PARTS if sliced else SPREAD) | ARRAY)


def viewed(frame: Frame, base: Value, name: str, node: Node) -> Value:
    """Return an attribute of what is spread: of a tree of arrays, another; of an array, what this process can tell."""
    if base.flags & KEYED:
        return _kept(base, name)
    if name == "is_fully_addressable" or (name == "is_fully_replicated" and in_parts(base)):
        return known(False)
    if name in LOCAL_VIEWS:
        return ANYTHING
    if name in OTHER_VIEWS and in_parts(base) and len(node) > 4:
        compute(frame, name, (node[3], max(node[4] - len(name), 0), node[3], node[4]))
        return Value(flags=SPREAD | ARRAY)
    return Value(base.taint, flags=base.flags - ARRAY)


def holds_parts(value: Value) -> bool:
    """Whether an array in parts is it, or in it."""
    inside = [one for _, one in pairs(value)] if value.flags & KEYED else value.elements or ()
    return in_parts(value) or (bool(value.flags & SPREAD) and any(map(holds_parts, inside)))


def eager(frame: Frame, name: str, values: Iterable[Value], span: Span) -> Value | None:
    """Return what a function, or a method of the first of these, computes of an array in parts; None for others."""
    kept = frozenset().union(*(value.flags for value in values))
    last = name.rpartition(".")[2]
    if "parts" not in kept or last in ABOUT or ("." in name and not name.startswith(COMPUTING)):
        return None
    compute(frame, name, span)
    return Value(flags=(kept & (PARTS | ROWS) if last in ELEMENTWISE else SPREAD) | ARRAY)


def _span_of(frame: Frame, node: Node) -> Span:
    """Return where the first part of an expression stands that says so; else its line."""
    while node[0] in ("op", "sub", "cmp"):
        node = node[1]
    if node[0] == "call":
        at: Span = node[4]
        return at
    if node[0] == "attr" and node[4]:
        return node[3], max(node[4] - len(node[2]), 0), node[3], node[4]
    return frame.line, 0, frame.line, 0
