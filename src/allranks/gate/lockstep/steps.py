"""How far a rank's loops go on from call to call: a rank that has left a step out has gone farther.

Ranks that leave out different steps make the same calls: only the loops around the calls tell. So a rank foretells
how far on it will come to its next call, by the rule by which it foretells the call (predictor.py). Where it comes as
far as that, it goes on without a word. Where not, it asks, as for a call that was not foretold: if all ranks left out
the same, all ask, and agree; if not, the others have gone on.

A loop may count what a rank has for itself (the samples of its own stream, of which it drops some; attempts), and then
nothing is wrong. So a loop is compared while it counts steps that the ranks share: where all ranks asked, it was
equally far on all; when it first went on, all asked, and since then it has gone on by one stride, or the ranks agreed
on another one; and a rank that left something out has gone on by a whole number of strides. The outermost loop may
start again, at different times on different ranks: nothing around it counts, so nothing says that this is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd
from typing import Any, NamedTuple

from allranks.gate.lockstep.predictor import Predictor
from allranks.world.claims import by_claim, who_says_what

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


class Position(NamedTuple):
    """How far the loops around a call are."""

    loops: Counts = ()

    def since(self, before: Position) -> Position:
        """Return by how much all has gone on; without loops where the outermost one has started again."""
        loops = _difference(self.loops, before.loops)
        return Position(() if loops and loops[0][1] < 0 else loops)


class Label(NamedTuple):
    """The element that a loop is at: the loop, the element in words, and a digest of all elements, in no order."""

    loop: str
    words: str
    elements: str


def compare_labels(told: Iterable[tuple[int, Iterable[Label]]]) -> tuple[str, dict[str, list[int]]] | None:
    """Return a loop in which ranks are at different ones of the same elements, and the ranks by their elements.

    None if there is none. Ranks that go through elements of their own are not compared.
    """
    ranks: dict[tuple[str, str], dict[str, list[int]]] = {}
    for (loop, words, elements), those in by_claim((rank, label) for rank, labels in told for label in labels).items():
        ranks.setdefault((loop, elements), {})[words] = those
    return next(((loop, by_words) for (loop, _), by_words in ranks.items() if len(by_words) > 1), None)


def _difference(now: Counts, before: Counts) -> Counts:
    there = dict(before)
    return tuple((key, count - there[key]) for key, count in now if key in there)


class Steps:
    """The positions of one group's calls on this rank.

    ``due`` is how many calls are made before the next one that is looked at, though it was foretold; ``agreed`` the
    position where all ranks agreed last, None where loops cannot be compared with it any more. With ``looks_always``
    every call is due. ``unshared`` are the loops that were not equally far on all ranks where all asked.
    """

    __slots__ = (
        *("_asked", "_before", "_compared", "_known", "_paces", "_predictor", "_regular", "_shared", "_stride"),
        *("agreed", "due", "last", "looks_always", "unshared"),
    )

    def __init__(self) -> None:
        self.due = 0
        self.last: Position | None = None
        self.agreed: Position | None = None
        self.unshared: set[Key] = set()
        self._predictor: Predictor[Position] = Predictor()
        # How far on the last call came, and all such by themselves, so that equal ones are one object.
        self._before: Position | None = None
        self._known: dict[Position, Position] = {}
        # A position that was compared with the last one, and what came of it.
        self._compared: tuple[Position, Position] | None = None
        # By how much a loop goes on, each time that it does (0: not always by as much).
        self._paces: dict[Key, int] = {}
        self._shared: set[Key] = set()
        self._stride = 1
        self._asked = 0
        # How many calls have come as foretold since one did not, of which nothing could be said.
        self._regular = _SETTLED
        self.looks_always = False

    @property
    def expected(self) -> Position | None:
        """How far on the next call that is looked at will come."""
        return self._predictor.expected or self._before

    def since(self, now: Position) -> Position:
        """Return how far on a call comes; as expected, as far as loops go, where the outermost has started again."""
        if self._compared is None or self._compared[0] is not now:
            found, expected = now.since(self.last or now), self.expected
            if expected and not found.loops:
                found = expected
            self._compared = now, self._known.setdefault(found, found)
        return self._compared[1]

    def is_expected(self, now: Position) -> bool:
        """Say whether a call that was foretold, and is due, comes as far on as foretold, as far as that can be said."""
        if self._regular < _SETTLED:
            return True
        found = (self._is_whole_steps(key, by) for key, by, _ in self._deviations(now))
        return self.expected is not None and not any(found)

    def slip(self, now: Position) -> str:
        """Return ``k = 3 in the loop at train.py:8, without a call at k = 2`` for a call that is not expected."""
        return next((_unusual(*one, dict(now.loops)) for one in self._deviations(now)), "")

    def _deviations(self, now: Position) -> list[tuple[Key, int, int]]:
        """Return the loops that have not gone on as foretold, the outermost first: by how much, and what is usual.

        Empty where a loop around them has gone on as foretold: those within it have begun anew.
        """
        since, expected = self.since(now), self.expected
        if expected is None or since is expected:
            return []
        usual, found = dict(expected.loops), []
        for key, by in since.loops:
            if by != usual.get(key, by):
                found.append((key, by, usual[key]))
            elif by and not found:
                return []
        return found

    def _is_whole_steps(self, key: Key, by: int) -> bool:
        """Say whether this is a whole number of steps of a loop that the ranks share."""
        pace = self._paces.get(key, 0)
        return pace > 0 and by % pace == 0 and key in self._shared

    def gone_on(self, now: Position) -> dict[Key, list[int | None]]:
        """Return, of each loop: by how much it has gone on since all ranks agreed, None where that cannot be compared;
        how far it is; and its stride, 0 where it has not gone on yet."""
        by = dict(now.since(self.agreed).loops) if self.agreed else {}
        found: dict[Key, list[int | None]] = {}
        for key, at in now.loops:
            pace = self._paces.get(key)
            found[key] = [by.get(key) if key in self._shared and pace != 0 else None, at, pace or 0]
        return found

    def look(self, count: int, now: Position, *, agreed: bool) -> None:
        """Remember the position of a call, which is made after ``count`` others; ``agreed``: all ranks asked."""
        if self.last is not None and (count == self.due or self._stride == 1):
            since = self.since(now)
            self._regular = self._regular + 1 if agreed or since is self.expected else 0
            if self._stride == 1:
                self._keep_pace(now.since(self.last), agreed=agreed)
            if self._predictor.expected is since:
                self._predictor.advance()
            else:
                self._predictor.learn(since)
            self._before = since
        if agreed:
            self.agreed = now
            self._shared = {*self._shared, *(key for key, _ in now.loops)} - self.unshared
        elif self.last and self.last.loops and not now.since(self.last).loops:
            self.agreed = None
        self.last, self._compared = now, None
        least = max((stride for calls, stride in _STRIDES.items() if count >= calls), default=1)
        if least > 1 and not self.looks_always:
            self._thin_out(least, is_asked=agreed and count == self.due)
        self.due = count + self._stride

    def _keep_pace(self, since: Position, *, agreed: bool) -> None:
        for key, by in since.loops:
            if by > 0:
                pace = self._paces.setdefault(key, by if agreed else 0)
                if by != pace:
                    self._paces[key] = gcd(by, pace) if agreed and pace else 0

    def _thin_out(self, least: int, *, is_asked: bool) -> None:
        """Look at fewer calls from now on; at ever fewer where they are asked for because they cannot be foretold."""
        self._asked += is_asked
        if self._stride < least or self._asked >= _MOST_ASKED:
            self._stride = max(least, 2 * self._stride + 1)
            self._asked, self._predictor, self._before = 0, Predictor(), None


def unequal(told: Sequence[Mapping[Key, Sequence[Any]]]) -> list[Key]:
    """Return the loops that are not equally far on all ranks: each counts by itself, and nothing can be compared."""
    keys = dict.fromkeys(key for loops in told for key in loops)
    return [key for key in keys if len({loops[key][1] if key in loops else None for loops in told}) > 1]


def compare(told: Iterable[tuple[int, Mapping[Key, Sequence[Any]]]]) -> tuple[str, Sequence[int]] | None:
    """Compare how far loops have gone on since all ranks agreed: (rank, ``Steps.gone_on`` of it).

    Return None if they have gone on alike, as far as ranks can tell. Else say how not, for the first loop from the
    outermost on, and which ranks left a call out, or made one more.
    """
    said = list(told)
    for key in dict.fromkeys(key for _, loops in said for key in loops):
        ranks: dict[tuple[int, int], list[int]] = {}
        strides = set()
        for rank, loops in said:
            if key in loops and loops[key][0] is not None:
                by, at, stride = loops[key]
                ranks.setdefault((by, at), []).append(rank)
                strides.add(stride)
        gone_on = [by for by, _ in ranks]
        if len(set(gone_on)) == 1 and gone_on[0]:
            return None  # the loops within this one have begun anew
        stride = max(strides, default=0) or min(gone_on, default=0)
        if len(set(gone_on)) > 1 and stride > 0 and not any(by % stride for by in gone_on):
            variable, _, where = key.partition(" ")
            words = who_says_what((f"{variable} = {at}, {by} on", those) for (by, at), those in ranks.items())
            odd = max(gone_on) if min(gone_on) > 0 else min(gone_on)
            return f"{where}: {words}", sorted(rank for (by, _), those in ranks.items() if by == odd for rank in those)
    return None


def in_words(now: Position) -> str:
    """Return ``k = 3 in the loop at train.py:8``: how far the innermost loop is; "" where there is none."""
    return "".join(_at(key, count) for key, count in now.loops[-1:])


def _at(key: Key, count: int) -> str:
    variable, _, where = key.partition(" ")
    return f"{variable} = {count} {where}"


def _unusual(key: Key, by: int, usual: int, loops: Mapping[Key, int]) -> str:
    count, variable = loops[key], key.partition(" ")[0]
    if 0 < usual < by:
        left_out = range(count - by + usual, count, usual)
        numbers = f"{left_out[0]}" + (f" to {left_out[-1]}" if len(left_out) > 1 else "")
        return f"{_at(key, count)}, without a call at {variable} = {numbers}"
    if by == 0:
        return f"{_at(key, count)}, as at the call before"
    return f"{_at(key, count)}, which was {count - by} at the call before"
