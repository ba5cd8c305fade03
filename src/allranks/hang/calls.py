"""Find out which of two groups of waiting ranks made a call that the program does not usually make.

A training step makes the same calls again and again. A rank that makes one more call (an evaluation under ``if rank ==
0``) departs from that sequence. A rank that is one complete step behind has skipped the step, and does not depart from
the sequence. This module does no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class CollectivesInFlight(NamedTuple):
    """The torch collectives in flight.

    ``begun`` and ``ended`` count the collectives of all ranks. ``pending`` names the other groups with collectives that
    have not ended.
    """

    begun: int
    ended: int
    pending: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecentCalls:
    """The last calls of one rank in the group of all ranks, oldest first; ``number`` is the number of the newest."""

    number: int = 0
    forms: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.forms)


NO_CALLS = RecentCalls()


def odd_one(one: RecentCalls, other: RecentCalls) -> int | None:
    """Compare the calls of two ranks; return which one departed from the usual sequence, 0 or 1; None if unknown.

    >>> odd_one(Calls(6, ("a", "b") * 2 + ("c", "a")), Calls(5, ("a", "b") * 2 + ("a",))) 0
    """
    common, rest = _split_at_divergence([one, other])
    if not common or not all(rest):
        return None
    extra, missing = Counter(rest[0]) - Counter(rest[1]), Counter(rest[1]) - Counter(rest[0])
    if bool(extra) != bool(missing):
        return (0 if extra else 1) if not _is_multiple_of_step(extra or missing, common) else (1 if extra else 0)
    expected, known = _expected_call(common), [calls[0] in common for calls in rest]
    fits = known if sum(known) == 1 else [calls[0] == expected for calls in rest]
    return fits.index(False) if sum(fits) == 1 else None


def _split_at_divergence(both: Sequence[RecentCalls]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the calls that both sequences have in common, and the calls that each sequence has after these."""
    firsts = [calls.number - len(calls.forms) + 1 for calls in both]
    start = max(firsts)
    seen = [calls.forms[start - first :] for calls, first in zip(both, firsts, strict=True)]
    alike = next((at for at, (mine, others) in enumerate(zip(*seen, strict=False)) if mine != others), None)
    at = min(map(len, seen)) if alike is None else alike
    return seen[0][:at], [calls[at:] for calls in seen]


def _is_multiple_of_step(extra: Counter[str], common: Sequence[str]) -> bool:
    """Return whether the extra calls are exactly those of one training step, or of several."""
    step = Counter(common[-_calls_per_step(common) :])
    return any(extra == Counter({form: many * times for form, many in step.items()}) for times in range(1, 9))


def _calls_per_step(common: Sequence[str]) -> int:
    """Return how many calls a training step makes: the number of calls after which the last calls repeat."""
    for period in range(1, len(common) // 2 + 1):
        if common[-period:] == common[-2 * period : -period]:
            return period
    return len(common)


def _expected_call(common: Sequence[str]) -> str | None:
    """Return the call that the program is expected to make next.

    It is the call that followed the longest earlier repetition of the last calls.
    """
    best, found = 0, None
    for end in range(len(common) - 1, 0, -1):
        length = 0
        while length < end and common[end - 1 - length] == common[-1 - length]:
            length += 1
        if length > best:
            best, found = length, common[end]
    return found
