"""What all ranks do together though a condition parts them: both of its arms call one function. Pure.

``if rank == 0: train(model, writer) else: train(model, None)``: what the function does whatever it is given, every rank
does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

from allranks.check.interpret.state import Arms, Called, Result, Span
from allranks.check.program import Event, Step


class BothArms:
    """Joins what is done on opposite arms of a condition, where one function does it to one thing."""

    def __init__(self) -> None:
        self._first: dict[Step, Step] = {}  # a call on either arm -> the one that stands first
        self._met: dict[tuple[object, ...], Event] = {}

    def note(self, result: Result, step: Callable[[Result, Span], Step]) -> None:
        """Note the calls in a function that stand on opposite arms; ``step`` says where a call stands."""
        for one, other in _opposite(result):
            first = step(result, one.span)
            self._first[step(result, other.span)] = self._first.setdefault(first, first)

    def joined(self, event: Event) -> Event:
        """Return an effect with the roles of those who have it on another arm."""
        if event.everyone or event.per_process or not event.is_effect or self._first.keys().isdisjoint(event.chain):
            return event
        calls = tuple(self._first.get(step, step) for step in event.chain)
        key = (event.place, event.name, calls, event.spelled)
        before = self._met.get(key)
        if before is not None:
            event = replace(event, roles=before.roles | event.roles, may=before.may | event.may)
        self._met[key] = event
        return replace(event, guard=None) if event.everyone else event


def _opposite(result: Result) -> Iterator[tuple[Called, Called]]:
    """Yield the calls of one function on opposite arms of a condition on the rank, if nobody meets anybody on the way
    from the one to the other."""
    guarded = [called for called in result.calls if called.guard is not None]
    for one, other in combinations(guarded, 2):
        if one.result.reference == other.result.reference and _part(one.arms, other.arms):
            between = result.meetings[one.met : other.met]
            if all(not isinstance(met, str) and met.span == one.span for met in between):
                yield one, other


def _part(one: Arms, other: Arms) -> bool:
    """Whether the last condition around one call is met and around the other not, and all others are the same."""
    return bool(one and other) and one[:-1] == other[:-1] and one[-1][0] == other[-1][0] and one[-1][1] != other[-1][1]
