"""What is known of a value that is one of two: after a branch, a loop, or several returns."""

from __future__ import annotations

from collections.abc import Iterable

from allranks.check.simulate.values import (
    ANYTHING,
    DATA,
    DIFFERS,
    FALSE,
    FILES,
    ByRole,
    Const,
    Either,
    Items,
    Table,
    Truth,
    Unknown,
    Value,
    by_role,
    made_of,
    of_role,
    options,
    taint,
    truth,
)

_MOST_OPTIONS = 6


def join(one: Value, other: Value, also: int = 0) -> Value:
    """Return what is known of a value that is one of two. ``also``: the taint of the condition that decides it."""
    if one is other or one == other:
        return one
    for made, before in ((one, other), (other, one)):  # who reduces it where there are others does so on the cluster
        if isinstance(made, Unknown) and made.kind == "agreed" and isinstance(before, Unknown) and before.taint & DATA:
            return made
    if also & FILES and not _are_answers(one, other):
        also = made_of(also)
    if isinstance(one, ByRole) or isinstance(other, ByRole):
        return by_role(join(of_role(one, role), of_role(other, role), also) for role in range(4))
    if isinstance(one, Items) and isinstance(other, Items) and len(one.items) == len(other.items):
        return Items(tuple(join(a, b, also) for a, b in zip(one.items, other.items, strict=True)), one.kind)
    if isinstance(one, Table) and isinstance(other, Table):
        return _join_tables(one, other, also)
    every = tuple(dict.fromkeys((*options(one), *options(other))))
    if not also & DIFFERS and len(every) <= _MOST_OPTIONS and any(not isinstance(v, Unknown) for v in every):
        return Either(every)
    both = taint(one) | taint(other) | also
    return Unknown(both) if both else ANYTHING


def _are_answers(one: Value, other: Value) -> bool:
    """Whether two values are answers to a question: True, False, or what another answer left open."""
    return all(isinstance(value, Const) and isinstance(value.value, bool) for value in (one, other))


def join_all(values: Iterable[Value]) -> Value | None:
    """Return what is known of a value that is one of several; None if there are none."""
    found: Value | None = None
    for value in values:
        found = value if found is None else with_others(found, value) or join(found, value)
    return found


def _join_tables(one: Table, other: Table, also: int) -> Table:
    keys = dict.fromkeys([*(key for key, _ in one.items), *(key for key, _ in other.items)])
    items = []
    for key in keys:
        a, b = one.get(key), other.get(key)
        items.append((key, join(a, b, also) if a is not None and b is not None else (a or b or ANYTHING)))
    return Table(tuple(items), open=True)


def select(letters: Truth, then: Value, orelse: Value, also: int) -> Value:
    """Return ``then`` for the roles for which a condition is true and ``orelse`` for the others. ``also``: the taint of
    the condition."""
    if then is orelse or then == orelse:
        return then
    if "U" not in letters and "D" not in letters and len(set(letters)) == 1:
        return then if letters[0] == "T" else orelse
    made = []
    for role, letter in enumerate(letters):
        a, b = of_role(then, role), of_role(orelse, role)
        made.append(a if letter == "T" else b if letter == "F" else join(a, b, also if letter == "D" else 0))
    return by_role(made)


def with_others(one: Value, other: Value) -> Value | None:
    """Return the one of two values that is for several processes, where a setting decides: a rank, or their number,
    instead of a constant. None if neither is."""
    for by_rank, plain in ((one, other), (other, one)):
        if is_of_several(by_rank) and isinstance(plain, Const):
            return by_rank
    return None


def is_of_several(value: Value) -> bool:
    """Return whether a value is a rank, or how many processes there are."""
    return isinstance(value, ByRole) or (isinstance(value, Unknown) and value.kind == "size")


def both(one: Value, other: Value) -> Value:
    """Return ``one and other`` for one role."""
    first, second = truth(one)[0], truth(other)[0]
    if first == "F":
        return one
    if first == "T":
        return other
    return FALSE if second == "F" else _one_of(one, other)


def either(one: Value, other: Value) -> Value:
    """Return ``one or other`` for one role."""
    first, second = truth(one)[0], truth(other)[0]
    if first == "T":
        return one
    if first == "F":
        return other
    if second == "T":
        return other if isinstance(other, Const) and other.value is True else join(one, other)
    return join(one, other) if not isinstance(other, Const | Unknown) else _one_of(one, other)


def _one_of(*values: Value) -> Unknown:
    picks = any(isinstance(value, Unknown) and value.kind == "which" for value in values)
    return Unknown(taint(values[0]) | taint(values[1]), kind="which" if picks else "")
