"""Objects that only some ranks have: made, handed over or collected where not all ranks are. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from allranks.check.interpret.given import Given
from allranks.check.interpret.in_parts import IN_PARTS
from allranks.check.interpret.spread import KEYED, LAYOUT, SPREAD
from allranks.check.interpret.state import Frame
from allranks.check.interpret.truth import EVERY, FIRST, UNKNOWN, negate, roles_where
from allranks.check.interpret.values import (
    AGREED,
    ANYTHING,
    NO_CONSTANT,
    RANK,
    RANKS,
    STATE,
    TAINT,
    Value,
    join,
    replace,
    uncounted,
)
from allranks.check.summaries.summary import Node
from allranks.check.tables.spoken import is_settings

_PATH = re.compile(r"(?i)path|file|dir\b|_dir|folder|fname")


def is_guarded(frame: Frame) -> bool:
    """Whether not all ranks are here."""
    return frame.may != EVERY or bool(frame.implicit & RANKS)


def is_partial(value: Value) -> bool:
    """Whether rank 0 has an object that others have not: there it is None."""
    return value.none[:1] not in ("T", "") and "T" in value.none and bool(value.instance)


def of_those_who_have(owner: Value, method: Value) -> Value:
    """Return a method of an object in whose place other ranks have one that does nothing: they do not run it."""
    if not owner.gate or method.gate or not method.reference:
        return method
    return replace(method, gate=owner.gate, text="who has it")


def hands_over(given: Given | None) -> bool:
    """Whether a function is given one that it may call, what only some ranks have, an array that lies on all, or how
    one is to lie."""
    values = given.all() if given is not None else ()
    return lends(values) or any(is_partial(v) or v.flags & (SPREAD | LAYOUT | KEYED) for v in values)


def lends(values: Iterable[Value]) -> bool:
    """Whether functions of the project are among these, or in lists among them."""
    return any("::" in v.reference or any("::" in one.reference for one in v.elements or ()) for v in values)


def there(frame: Frame) -> str:
    """Return the truth of what is here: true on the ranks that are here for certain, elsewhere nobody knows."""
    return "".join("T" if frame.mask >> at & 1 else "W" for at in range(4))


def only_here(frame: Frame, value: Value) -> Value:
    """Return an object, or a truth, as others see it that find it later: there on these ranks. What it is made of
    stays as it is: a path that rank 0 alone is told of may be one that all know."""
    plain = value.constant is NO_CONSTANT and not value.truth and not value.number
    if not plain and value.constant is not True and value.constant is not None:
        return value
    truth = there(frame)
    if value.constant is None:  # others may have something
        return replace(value, constant=NO_CONSTANT, truth=negate(truth), none=truth)
    none = negate(truth) if plain else ""
    return replace(value, constant=NO_CONSTANT, truth=truth, none=none)


def guarded(frame: Frame, given: Given) -> Given:
    """Return what a constructor is given that some ranks alone call: other ranks may make one without."""
    given = given._replace(values=uncounted(given.values))
    if not is_guarded(frame):
        return given
    values = tuple(only_here(frame, value) for value in given.values)
    return Given(values, tuple((name, only_here(frame, value)) for name, value in given.keywords), given.node)


def filled(frame: Frame, base: Value) -> Value | None:
    """Return an empty list that something is put in: how much, nobody knows, and on these ranks alone if others do not
    come here; None if something is in it on all."""
    if base.elements != () and not (base.truth and base.ranked):
        return None
    if is_guarded(frame):
        return replace(base, elements=None, constant=NO_CONSTANT, taint=base.taint | RANK, truth=there(frame))
    return replace(base, elements=None, constant=NO_CONSTANT, truth=UNKNOWN) if base.elements == () else None


def silenced(frame: Frame, value: Value) -> Value | None:
    """Return what a setting is that all but the first ranks put out: None or False there, on the first what it was
    before. None for what is no such thing."""
    if frame.may & 1 or value.constant not in (None, False) or value.taint:
        return None
    truth = "".join("F" if frame.mask >> at & 1 else "W" if frame.may >> at & 1 else "U" for at in range(4))
    none = truth.replace("F", "T") if value.constant is None else UNKNOWN
    return Value(RANK | STATE, truth=truth, none=none) if "F" in truth else None


def is_quiet(value: Value) -> bool:
    """Whether it is what `silenced` makes."""
    return bool(value.taint & STATE) and value.truth[:1] == "U" and "F" in value.truth


def settings_of(node: Node) -> str:
    """Return under whose name what is put out in an object of no known class is kept: ``args`` of ``self.args.out``."""
    base = node[1] if node else ("",)
    return f"*.{base[1 if base[0] == 'name' else 2].lstrip('_')}" if base[0] in ("name", "attr") else "*."


def names_path(attribute: str) -> bool:
    """Whether an attribute, by its name, holds a path."""
    return _PATH.search(attribute) is not None


def is_own(path: Value) -> bool:
    """Whether a path is one process' own: not one that some ranks have, and others do not."""
    absent = roles_where(path.none, "T")
    guard = next((kind for kind, first in FIRST.items() if absent and absent == roles_where(first, "F")), "")
    path = replace(path, taint=path.taint & ~TAINT[guard]) if guard else path
    return path.private or path.reference in ("os.devnull", "sys.stdout", "sys.stderr")


def stored_twice(before: Value, value: Value) -> Value:
    """Return what an attribute holds that two places store.

    If all ranks alike store something unknown in it too, they may have agreed on it. If all they store is a constant,
    what the guarded place left there is on some ranks only. What was put out stays so, whoever sets it elsewhere.
    """
    if "agreed" not in before.flags | value.flags and (quiet := [v for v in (before, value) if is_quiet(v)]):
        return quiet[-1]
    states = [v for v in (before, value) if v.taint & STATE]
    others = [v for v in (before, value) if not v.taint & STATE]
    if not states or "agreed" in before.flags:
        return join(before, replace(value, taint=0, truth="") if states else value)
    if any(other.constant is NO_CONSTANT and not (other.instance and other.truth) for other in others):
        return AGREED
    joined = join(before, value)
    return replace(joined, truth=joined.truth.replace("W", "D"), none=joined.none.replace("W", "D"))


def part_of(whole: Value, name: str) -> Value:
    """Return what is known of an attribute of what is called ``name``, and of which no class is known."""
    dealt = whole.ranked and not whole.taint & STATE and not whole.truth.strip("D")
    if dealt and is_settings(name):
        # Settings that are dealt out have names of their own in them, and say all the same what is to be done.
        return Value(whole.taint & ~RANKS, flags=whole.flags | {"own"})
    plain, flags = not whole.instance or whole.flags, whole.flags - IN_PARTS
    return Value(whole.taint, flags=flags) if plain and (whole.taint or flags) else ANYTHING
