"""Predict the next call of a group of ranks from its past calls: why ranks need no message for a predicted call.

All ranks of a group predict the next call by one rule from the calls that all of them have made: so all predict the
same call. A rank that is about to make the predicted call makes it at once. A rank that is about to make another call
agrees with the others first (sequence.py). Of two ranks that diverge, at most one makes the predicted call: the other
one comes to agree before it makes its call, and the divergence is found. So no two ranks ever make different calls with
each other, however the loop branches; a good rule only makes agreements rare.

The rule: after a call that was not predicted, find the place in the past that is most like now, and predict that the
calls after it come again, in a cycle. A loop is predicted from its third iteration on at the latest; an irregular loop
costs an agreement or two where it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Generic, TypeVar

T = TypeVar("T")
# How many calls are remembered, and how many of them are compared to find the like of now.
_MEMORY, _LIKENESS = 8192, 64


class Predictor(Generic[T]):
    """The calls of one group so far, and the predicted next one. Calls are compared by identity.

    ``count`` is how many calls were made, ``expected`` the predicted call, None where there is no prediction.
    """

    __slots__ = ("_learnt", "_next", "_past", "_round", "count", "expected")

    def __init__(self) -> None:
        self.count = 0
        self.expected: T | None = None
        self._past: list[T] = []
        # The predicted cycle of calls, and the number of the call after which it began.
        self._round: Sequence[T] = ()
        self._learnt = 0
        self._next: Callable[[], T]

    def advance(self) -> None:
        """Count the predicted call as made."""
        self.count += 1
        self.expected = self._next()

    def learn(self, call: T) -> None:
        """Count a call as made that was not predicted, on which all ranks have agreed."""
        self._remember()
        self._past.append(call)
        self.count += 1
        self._predict(_like_of_now(self._past))

    def undo(self) -> None:
        """Uncount the last call, which failed; no call is predicted next."""
        if self.count > self._learnt:
            self.count -= 1
            self._remember()
        else:
            self._past.pop()
            self.count -= 1
        self._predict(None)

    def call(self, number: int) -> T | None:
        """Return the call of this number, 1 for the first; None for one that is forgotten or was not made."""
        if self._learnt < number <= self.count:
            return self._round[(number - self._learnt - 1) % len(self._round)]
        return self._past[-1] if number == self._learnt and self._past else None

    def _predict(self, place: int | None) -> None:
        """Predict the calls that came after a place in the past, to its end, and then these again."""
        self._learnt = self.count
        self._round = () if place is None else self._past[place + 1 :]
        if self._round:
            self._next = cycle(self._round).__next__
        self.expected = self._next() if self._round else None

    def _remember(self) -> None:
        """Append the last of the calls that came as predicted to the past."""
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
