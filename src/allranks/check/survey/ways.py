"""The ways from an entry to two effects: which comes first, and where they part. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from allranks.check.program import Event
from allranks.check.tables.effects import Effect

_AWAITS = re.compile(r"^\s*while not [\w.]*(exists|isfile|is_file)\(")
# A function of the project by which all wait, whatever is known of it.
_MEETS = re.compile(
    r"^\s*(?!.*cuda)(\w+\.)*(_?sync|\w*barrier|synchronize(_\w+)?|wait_for_everyone|sync_(hosts|processes|ranks))\("
)


def root(event: Event) -> tuple[str, str]:
    """Return where the way to an effect begins."""
    return event.start.symbol, event.start.place.path


def when(event: Event) -> list[tuple[str, int, int]]:
    """Return when it happens: where the calls that lead there end in their functions."""
    places = (*(step.place for step in event.chain), event.place)
    return [(place.path, place.end_line, place.end_column) for place in places]


def parting(one: Event, other: Event) -> int:
    """Return how many calls both ways have in common."""
    pairs = zip(when(one), when(other), strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one.chain), len(other.chain)))


def apart(earlier: Event, later: Event) -> bool:
    """Whether two events are on two sides of a condition in the function where their ways part."""
    ways = zip(when(earlier), earlier.arms, when(later), later.arms, strict=False)
    one, other = next(((dict(one), dict(other)) for a, one, b, other in ways if a != b), ({}, {}))
    return any(other.get(span, side) != side for span, side in one.items())


def awaited(earlier: Event, later: Event, lines: Mapping[str, list[str]]) -> bool:
    """Whether a file that is moved to its place when it is whole is waited for in a loop before it is used, or all
    wait for each other by a function that is called so."""
    inside = earlier.function == later.function
    between = lines.get(later.place.path, [])[earlier.place.line : later.place.line - 1] if inside else ()
    moved = isinstance(earlier.entry, Effect) and earlier.entry.kind == "moved"
    return any(map(_MEETS.search, between)) or (moved and any(map(_AWAITS.search, between)))
