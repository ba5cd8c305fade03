"""What a group of ranks will call next, foretold from what it has called: why ranks that ask nobody cannot part.

All ranks of a group foretell the next call by one rule from the calls that all of them have made: so all foretell the
same. A rank that is about to make the call that was foretold goes on without a word. A rank that is not asks the others
first (sequence.py). Of two ranks that part, at most one makes the call that was foretold: the other one asks before it
enters, and whoever has gone elsewhere is found. So no call is made with a rank that makes another one, however the loop
branches; a good rule only makes questions rare.

The rule: after a call that was not foretold, find the place in the past that is most like now, and foretell that what
came after it comes again, round and round. A loop is foretold from its third round on at the latest, an irregular one
costs a question or two where it turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Generic, TypeVar

T = TypeVar("T")
# How many calls are remembered, and how many of them are compared to find the like of now.
_MEMORY, _LIKENESS = 8192, 64


class Predictor(Generic[T]):
    """The calls of one group so far, and the next. Calls are compared by identity.

    ``count`` is how many calls were made, ``expected`` the one that is foretold, None where none is.
    """

    __slots__ = ("_learnt", "_next", "_past", "_round", "count", "expected")

    def __init__(self) -> None:
        self.count = 0
        self.expected: T | None = None
        self._past: list[T] = []
        # What comes round, and after which call it began to.
        self._round: Sequence[T] = ()
        self._learnt = 0
        self._next: Callable[[], T]

    def advance(self) -> None:
        """The call that was foretold is made."""
        self.count += 1
        self.expected = self._next()

    def learn(self, call: T) -> None:
        """Another call than the one that was foretold is made, and all ranks have agreed to it."""
        self._remember()
        self._past.append(call)
        self.count += 1
        self._predict(_like_of_now(self._past))

    def take_back(self) -> None:
        """The last call was not made after all; the next one is not foretold, whatever it is."""
        if self.count > self._learnt:
            self.count -= 1
            self._remember()
        else:
            self._past.pop()
            self.count -= 1
        self._predict(None)

    def call(self, number: int) -> T | None:
        """Return the call of this number, 1 for the first; None for one of long ago or one that was not made."""
        if self._learnt < number <= self.count:
            return self._round[(number - self._learnt - 1) % len(self._round)]
        return self._past[-1] if number == self._learnt and self._past else None

    def _predict(self, place: int | None) -> None:
        """Foretell what came after a place in the past, to its end, and that again."""
        self._learnt = self.count
        self._round = () if place is None else self._past[place + 1 :]
        if self._round:
            self._next = cycle(self._round).__next__
        self.expected = self._next() if self._round else None

    def _remember(self) -> None:
        """Write down the last of the calls that came as foretold."""
        went = self.count - self._learnt
        first = max(0, went - _MEMORY // 2)
        self._past.extend(self._round[i % len(self._round)] for i in range(first, went))
        del self._past[:-_MEMORY]


def _like_of_now(past: Sequence[T]) -> int | None:
    """Return the place before the last at which the same call ends the longest run of the same calls.

    Of several the earliest: in a long run of one call it is the one from which the run goes on longest.
    """
    last = len(past) - 1
    best, found = 0, None
    for place in range(last):
        if past[place] is not past[last]:
            continue
        length = 1
        while length <= min(place, _LIKENESS) and past[place - length] is past[last - length]:
            length += 1
        if length > best:
            best, found = length, place
        if best > _LIKENESS:
            break
    return found
