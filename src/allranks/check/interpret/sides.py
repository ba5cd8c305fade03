"""What variables are after a branch, a loop or a try, of which each side leaves its own. Pure."""

from __future__ import annotations

from allranks.check.interpret.values import NO_CONSTANT, NONE, RANKS, STATE, Value, chosen


def merged(truth: str, one: dict[str, Value], other: dict[str, Value], taint: int) -> dict[str, Value]:
    """Return the variables after a branch, of which each side left its own. An attribute that one side alone sets to a
    constant is on the other what it was: what all methods make of it is asked then."""
    if one == other:
        return one
    merged = {**one, **other}
    if taint & RANKS and set(truth) == {"T", "F"}:  # an object that only some ranks make: others have no such variable
        one, other = _without(one, other), _without(other, one)
        merged = {**one, **other}
    elif "T" not in truth and "F" not in truth:
        for name in one.keys() ^ other.keys():
            if "." in name and _is_plain(merged[name]):
                del merged[name]
    for name, a in one.items():
        b = other.get(name, a)
        if a is not b:
            there = (a.constant is None) != (b.constant is None)  # an object that only some have, no state that differs
            merged[name] = chosen(truth, a, b, taint & ~STATE if there else taint)
    return merged


def _without(one: dict[str, Value], other: dict[str, Value]) -> dict[str, Value]:
    """Return variables, with None for the objects that only the other side made."""
    absent = {name: NONE for name, value in other.items() if name not in one and value.instance}
    return {**one, **absent} if absent else one


def _is_plain(value: Value) -> bool:
    """Whether it is a constant that says nothing of ranks."""
    return value.constant is not NO_CONSTANT and not (value.taint or value.flags or value.instance)
