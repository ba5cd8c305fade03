"""What an assignment to several names takes a value apart into. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from allranks.check.interpret.spread import unpacked
from allranks.check.interpret.truth import FALSE, TRUE
from allranks.check.interpret.values import ANYTHING, MOST_ELEMENTS, ONE_OF, Value, tainted
from allranks.check.summaries.summary import Node


def taken_apart(value: Value, targets: Sequence[Node]) -> tuple[Value, ...]:
    """Return what each of the targets is given; the one with a star, a list of what the others leave."""
    parts = value.elements if not value.flags & ONE_OF else None
    star = next((at for at, target in enumerate(targets) if target[0] == "star"), None)
    if parts is None or (star is None and len(parts) != len(targets)) or len(parts) < len(targets) - 1:
        return (unpacked(value),) * len(targets)
    if star is None:
        return parts
    if len(parts) == MOST_ELEMENTS:  # there may have been more
        return (*parts[:star], *(unpacked(value) for _ in targets[star:]))
    end = len(parts) - (len(targets) - star - 1)
    left = parts[star:end]
    told = any(part != ANYTHING for part in left)
    rest = Value(tainted(*left).taint, elements=left, truth=TRUE if left else FALSE) if told or not left else ANYTHING
    return (*parts[:star], rest, *parts[end:])
