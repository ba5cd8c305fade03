"""Compare how far the program's loops advance between calls, to find ranks that skipped a step.

Ranks that skip different steps make the same calls: only the loops around the calls differ. So a rank predicts the
advance of its loops at the next call, by the rule by which it predicts the call (predictor.py). If the advance is as
predicted, it makes the call at once. If not, the ranks agree first, as for a call that was not predicted. If all ranks
skipped the same step, all of them enter the agreement. If not, the other ranks have continued.

A loop may count something rank-local, such as attempts, or the samples of one rank's stream of which it drops some.
Then a difference is no error. So a loop is compared only while it counts steps that the ranks share:

- Its count was equal at every agreement of all ranks.
- It advances by one increment, or by another increment on which the ranks agreed.
- A rank that skipped something has advanced by a multiple of the increment.

The outermost loop may start again at different times on different ranks. Nothing around it counts, so this is not
compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd
from typing import Any, NamedTuple

from allranks.gate.lockstep.predictor import CallPredictor
from allranks.world.claims import by_claim, describe_groups

# A loop, as it is named on every rank: ``k in the loop at train.py:8``.
Key = str
# How far loops are, the outermost first; or by how much they have gone on.
Counts = tuple[tuple[Key, int], ...]
# After so many calls, of which each was looked at, so many lie between two looks: primes, so that of calls that take
# turns each is looked at.
_STRIDES = {1024: 17, 4096: 61}
# So many calls come as foretold, after one that did not by itself, before what is foretold is believed again.
_SETTLED = 8
# After so many that could not be foretold, twice as many lie between.
_MOST_ASKED = 32


class LoopPosition(NamedTuple):
    """The counts of the loops around a call, outermost first."""

    loops: Counts = ()

    def advance_since(self, earlier: LoopPosition) -> LoopPosition:
        """Return how far each loop has advanced since ``earlier``.

        The result has no loops if the outermost loop started again.
        """
        loops = _count_differences(self.loops, earlier.loops)
        return LoopPosition(() if loops and loops[0][1] < 0 else loops)


class LoopElement(NamedTuple):
    """The element that a loop is working on.

    ``loop`` is the loop, ``element`` a description of the element, and ``elements`` an order-free digest of all
    elements.
    """

    loop: str
    element: str
    elements: str


def compare_labels(
    elements_by_rank: Iterable[tuple[int, Iterable[LoopElement]]],
) -> tuple[str, dict[str, list[int]]] | None:
    """Return a loop over equal elements in which ranks are at different elements, and the ranks by element.

    None if there is no such loop. Ranks that iterate over different elements are not compared.
    """
    ranks: dict[tuple[str, str], dict[str, list[int]]] = {}
    for (loop, element, elements), those in by_claim(
        (rank, label) for rank, labels in elements_by_rank for label in labels
    ).items():
        ranks.setdefault((loop, elements), {})[element] = those
    return next(((loop, by_words) for (loop, _), by_words in ranks.items() if len(by_words) > 1), None)


def _count_differences(now: Counts, before: Counts) -> Counts:
    there = dict(before)
    return tuple((key, count - there[key]) for key, count in now if key in there)


class GroupSteps:
    """Tracks at which counts of the program's loops this rank makes its calls of one group.

    - ``due``: the number of calls before the next call that is checked even if it was predicted.
    - ``agreed``: the position of the last agreement of all ranks; None if loops cannot be compared with it any more.
    - ``last``: the last recorded position.
    - ``checks_every_call``: every call is due.
    - ``unshared``: the loops whose counts differed between ranks at an agreement.
    """

    __slots__ = (
        *("_asked", "_before", "_compared", "_known", "_increments", "_predictor", "_regular", "_shared", "_stride"),
        *("agreed", "due", "checks_every_call", "last", "unshared"),
    )

    def __init__(self) -> None:
        self.due = 0
        self.last: LoopPosition | None = None
        self.agreed: LoopPosition | None = None
        self.unshared: set[Key] = set()
        self._predictor: CallPredictor[LoopPosition] = CallPredictor()
        # How far on the last call came, and all such by themselves, so that equal ones are one object.
        self._before: LoopPosition | None = None
        self._known: dict[LoopPosition, LoopPosition] = {}
        # A position that was compared with the last one, and what came of it.
        self._compared: tuple[LoopPosition, LoopPosition] | None = None
        # By how much a loop goes on, each time that it does (0: not always by as much).
        self._increments: dict[Key, int] = {}
        self._shared: set[Key] = set()
        self._stride = 1
        self._asked = 0
        # How many calls have come as foretold since one did not, of which nothing could be said.
        self._regular = _SETTLED
        self.checks_every_call = False

    @property
    def expected_advance(self) -> LoopPosition | None:
        """The predicted advance at the next call that is checked; None if there is no prediction."""
        return self._predictor.expected or self._before

    def advance_at_call(self, loop_position: LoopPosition) -> LoopPosition:
        """Return the advance at a call; the expected advance if the outermost loop has started again."""
        if self._compared is None or self._compared[0] is not loop_position:
            found, expected = loop_position.advance_since(self.last or loop_position), self.expected_advance
            if expected and not found.loops:
                found = expected
            self._compared = loop_position, self._known.setdefault(found, found)
        return self._compared[1]

    def is_expected(self, loop_position: LoopPosition) -> bool:
        """Return whether the advance at a predicted call that is due is as predicted, as far as that can be known."""
        if self._regular < _SETTLED:
            return True
        found = (self._is_multiple_of_increment(key, by) for key, by, _ in self._deviations(loop_position))
        return self.expected_advance is not None and not any(found)

    def describe_deviation(self, loop_position: LoopPosition) -> str:
        """Return a description of an unexpected advance at a call; "" if the advance is as expected.

        For example: ``k = 3 in the loop at train.py:8, without a call at k = 2``.
        """
        return next(
            (_describe_unusual_advance(*one, dict(loop_position.loops)) for one in self._deviations(loop_position)), ""
        )

    def _deviations(self, now: LoopPosition) -> list[tuple[Key, int, int]]:
        """Return the loops that have not advanced as predicted, outermost first: (loop, advance, usual advance).

        Empty if a loop around them has advanced as predicted: then the loops within that loop have started again.
        """
        since, expected = self.advance_at_call(now), self.expected_advance
        if expected is None or since is expected:
            return []
        usual, found = dict(expected.loops), []
        for key, by in since.loops:
            if by != usual.get(key, by):
                found.append((key, by, usual[key]))
            elif by and not found:
                return []
        return found

    def _is_multiple_of_increment(self, key: Key, by: int) -> bool:
        """Return whether ``by`` is a multiple of the increment of this loop, and the ranks share the loop."""
        increment = self._increments.get(key, 0)
        return increment > 0 and by % increment == 0 and key in self._shared

    def loop_progress(self, loop_position: LoopPosition) -> dict[Key, list[int | None]]:
        """Return, for each loop, [advance, count, increment].

        The advance is since the last agreement of all ranks; None if it cannot be compared. The increment is 0 if the
        loop has not advanced yet.
        """
        by = dict(loop_position.advance_since(self.agreed).loops) if self.agreed else {}
        found: dict[Key, list[int | None]] = {}
        for key, at in loop_position.loops:
            increment = self._increments.get(key)
            found[key] = [by.get(key) if key in self._shared and increment != 0 else None, at, increment or 0]
        return found

    def record_call(self, calls_before: int, loop_position: LoopPosition, *, is_agreed: bool) -> None:
        """Record the loop position ``loop_position`` of a call that is made after ``calls_before`` others.

        ``is_agreed``: all ranks agreed on the call.
        """
        if self.last is not None and (calls_before == self.due or self._stride == 1):
            since = self.advance_at_call(loop_position)
            self._regular = self._regular + 1 if is_agreed or since is self.expected_advance else 0
            if self._stride == 1:
                self._update_increments(loop_position.advance_since(self.last), agreed=is_agreed)
            if self._predictor.expected is since:
                self._predictor.count_predicted_call()
            else:
                self._predictor.count_agreed_call(since)
            self._before = since
        if is_agreed:
            self.agreed = loop_position
            self._shared = {*self._shared, *(key for key, _ in loop_position.loops)} - self.unshared
        elif self.last and self.last.loops and not loop_position.advance_since(self.last).loops:
            self.agreed = None
        self.last, self._compared = loop_position, None
        least = max((stride for calls, stride in _STRIDES.items() if calls_before >= calls), default=1)
        if least > 1 and not self.checks_every_call:
            self._thin_out(least, is_asked=is_agreed and calls_before == self.due)
        self.due = calls_before + self._stride

    def _update_increments(self, since: LoopPosition, *, agreed: bool) -> None:
        for key, by in since.loops:
            if by > 0:
                increment = self._increments.setdefault(key, by if agreed else 0)
                if by != increment:
                    self._increments[key] = gcd(by, increment) if agreed and increment else 0

    def _thin_out(self, least: int, *, is_asked: bool) -> None:
        """Check fewer calls from now on, and even fewer if the advance of the loops cannot be predicted."""
        self._asked += is_asked
        if self._stride < least or self._asked >= _MOST_ASKED:
            self._stride = max(least, 2 * self._stride + 1)
            self._asked, self._predictor, self._before = 0, CallPredictor(), None


def unequal_loops(progress_by_rank: Sequence[Mapping[Key, Sequence[Any]]]) -> list[Key]:
    """Return the loops whose counts differ between ranks, because each rank counts something rank-local in them."""
    keys = dict.fromkeys(key for loops in progress_by_rank for key in loops)
    return [key for key in keys if len({loops[key][1] if key in loops else None for loops in progress_by_rank}) > 1]


def compare_advances(
    progress_by_rank: Iterable[tuple[int, Mapping[Key, Sequence[Any]]]],
) -> tuple[str, Sequence[int]] | None:
    """Compare how far loops advanced since all ranks agreed; ``progress_by_rank`` are pairs (rank,
    ``GroupSteps.loop_progress``).

    Return None if the advance is equal, as far as the ranks know. Else return a description of the outermost loop that
    differs, and the ranks that skipped a call or made one more.
    """
    reports = list(progress_by_rank)
    for key in dict.fromkeys(key for _, loops in reports for key in loops):
        ranks: dict[tuple[int, int], list[int]] = {}
        strides = set()
        for rank, loops in reports:
            if key in loops and loops[key][0] is not None:
                by, at, stride = loops[key]
                ranks.setdefault((by, at), []).append(rank)
                strides.add(stride)
        loop_progress = [by for by, _ in ranks]
        if len(set(loop_progress)) == 1 and loop_progress[0]:
            return None  # the loops within this one have begun anew
        stride = max(strides, default=0) or min(loop_progress, default=0)
        if len(set(loop_progress)) > 1 and stride > 0 and not any(by % stride for by in loop_progress):
            variable, _, where = key.partition(" ")
            words = describe_groups((f"{variable} = {at}, {by} on", those) for (by, at), those in ranks.items())
            odd = max(loop_progress) if min(loop_progress) > 0 else min(loop_progress)
            return f"{where}: {words}", sorted(rank for (by, _), those in ranks.items() if by == odd for rank in those)
    return None


def describe_innermost_loop(loop_position: LoopPosition) -> str:
    """Return the count of the innermost loop, e.g. ``k = 3 in the loop at train.py:8``; "" if there is no loop."""
    return "".join(_describe_count(key, count) for key, count in loop_position.loops[-1:])


def _describe_count(key: Key, count: int) -> str:
    variable, _, where = key.partition(" ")
    return f"{variable} = {count} {where}"


def _describe_unusual_advance(key: Key, by: int, usual: int, loops: Mapping[Key, int]) -> str:
    count, variable = loops[key], key.partition(" ")[0]
    if 0 < usual < by:
        left_out = range(count - by + usual, count, usual)
        numbers = f"{left_out[0]}" + (f" to {left_out[-1]}" if len(left_out) > 1 else "")
        return f"{_describe_count(key, count)}, without a call at {variable} = {numbers}"
    if by == 0:
        return f"{_describe_count(key, count)}, as at the call before"
    return f"{_describe_count(key, count)}, which was {count - by} at the call before"
