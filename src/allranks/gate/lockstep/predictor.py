"""Predict the next call of a group of ranks from its past calls, so that a predicted call needs no message.

All ranks of a group apply one rule to the calls that all of them have made. So all ranks predict the same call. A rank
that is about to make the predicted call makes it at once. A rank that is about to make another call first agrees with
the other ranks (sequence.py). If two ranks diverge, at most one makes the predicted call. The other one asks for an
agreement before it makes its call, and the divergence is found. So two ranks never make different calls with each
other, however the loop branches. A good rule only makes agreements rare.

The rule: after a call that was not predicted, find the position in the past that is most similar to the present.
Predict that the calls after it repeat, in a cycle. A loop is predicted from its third iteration at the latest. An
irregular loop costs an agreement or two at each change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Generic, TypeVar

T = TypeVar("T")
# How many calls are remembered, and how many of them are compared to find the like of now.
_MEMORY, _LIKENESS = 8192, 64


class CallPredictor(Generic[T]):
    """Stores the past calls of one group, and predicts the next call. Calls are compared by identity.

    ``count`` is how many calls were made. ``expected`` is the predicted call; None if there is no prediction.
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

    def count_predicted_call(self) -> None:
        """Count the predicted call as made."""
        self.count += 1
        self.expected = self._next()

    def count_agreed_call(self, call: T) -> None:
        """Count a call as made that was not predicted, and on which all ranks have agreed."""
        self._append_to_past()
        self._past.append(call)
        self.count += 1
        self._predict_cycle(_most_similar_position(self._past))

    def remove_last_call(self) -> None:
        """Remove the last call, which failed, from the count. After this, no call is predicted."""
        if self.count > self._learnt:
            self.count -= 1
            self._append_to_past()
        else:
            self._past.pop()
            self.count -= 1
        self._predict_cycle(None)

    def stored_call(self, call_number: int) -> T | None:
        """Return the call with this number (the first is 1); None if it was not made, or is not stored any more."""
        if self._learnt < call_number <= self.count:
            return self._round[(call_number - self._learnt - 1) % len(self._round)]
        return self._past[-1] if call_number == self._learnt and self._past else None

    def _predict_cycle(self, place: int | None) -> None:
        """Predict a cycle: the calls from after this position in the past up to the present. None: predict nothing."""
        self._learnt = self.count
        self._round = () if place is None else self._past[place + 1 :]
        if self._round:
            self._next = cycle(self._round).__next__
        self.expected = self._next() if self._round else None

    def _append_to_past(self) -> None:
        """Append those calls to the past that were made as predicted; keep only the newest ones."""
        went = self.count - self._learnt
        first = max(0, went - _MEMORY // 2)
        self._past.extend(self._round[i % len(self._round)] for i in range(first, went))
        del self._past[:-_MEMORY]


def _most_similar_position(past: Sequence[T]) -> int | None:
    """Return the position in the past that is most similar to the present; None if the last call is new.

    It is an earlier position of the last call, at which the longest run of the same calls ends. Of several equal runs
    it is the earliest: in a long run of one call, that one leaves the longest cycle.
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
