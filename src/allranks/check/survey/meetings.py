"""What is met in on a way, in functions and in what they call: how much, and by which operations."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.interpret.below import deepest_first
from allranks.check.interpret.state import Called, Result


class Meetings:
    """Counts the meetings of results, each result once."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._ahead: dict[int, frozenset[str]] = {}
        self._known: dict[tuple[int, int, int], frozenset[str]] = {}

    def before(self, start: Result, stop: int = 1 << 30) -> int:
        """Return how many meetings there are in ``start`` before meeting ``stop``, in what it calls too."""
        for result in deepest_first(start, self._sizes, _met_in) if stop else ():
            self._sizes[id(result)] = self._sum(result.meetings)
        return self._sum(start.meetings[:stop])

    def _sum(self, meetings: list[str | Called]) -> int:
        return sum(1 if isinstance(one, str) else self._sizes.get(id(one.result), 0) for one in meetings)

    def between(self, start: Result, first: int, stop: int = 1 << 30) -> frozenset[str]:
        """Return what is met in ``start`` from meeting ``first`` on, before meeting ``stop``."""
        for result in deepest_first(start, self._ahead, _met_in):
            self._ahead[id(result)] = self._union(result.meetings)
        key = (id(start), first, stop)
        if key not in self._known:
            self._known[key] = self._union(start.meetings[first:stop])
        return self._known[key]

    def _union(self, meetings: list[str | Called]) -> frozenset[str]:
        met = ({one} if isinstance(one, str) else self._ahead.get(id(one.result), frozenset()) for one in meetings)
        return frozenset().union(*met)


def _met_in(result: Result) -> Iterator[Result]:
    return (one.result for one in result.meetings if not isinstance(one, str))
