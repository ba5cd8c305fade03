"""Describe a call that ranks make together, and build the Mismatch for calls that differ.

The Mismatch says which rank makes which call, and at which line. A rank's position in the call sequence is counted in
halves. Position ``2 n`` is after its n-th call with a group and before the next call. Position ``2 n - 1`` is within
the n-th call (a JAX function that runs a new program). A rank that waits at a position has not gone past it. Another
rank that has gone past that position will never wait there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allranks.digest import digest, show
from allranks.errors import CollectiveOnOneRank, Mismatch, name_ranks
from allranks.gate.lockstep.branches import EQUAL_STEPS, DivergenceReason, Frames, divergence_reason, guard_of
from allranks.world.claims import Ticket, by_claim, describe_groups, minority_ranks

# How many lines of a call travel where ranks differ: the first difference is most often among the first.
_MOST_LINES = 2000
_END_OF_REGION = "leaving"
ONE_ORDER = "Every rank must make the same calls in one order."
_CODE = "Do all ranks run the same code, with the same constants?"
LEFT_OUT = (
    "Did a rank leave out a step (an exception that it caught, a condition, a batch less), or make one twice? "
    'Where ranks may do so by themselves: lockstep(check="values").'
)
_LINES = "If it is meant that two lines start one call, say lockstep(lines=False)."


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call that all ranks of a group make together.

    ``what`` describes it in one line, and ``lines`` in full. ``where`` is the user's line that starts it. ``digest`` is
    equal on two ranks if and only if they make the same call. ``details()`` returns more lines, and is called only if
    ranks differ.
    """

    what: str
    where: str
    lines: tuple[str, ...]
    digest: str
    details: Callable[[], Iterable[str]] = tuple

    def __str__(self) -> str:
        return self.what + (f" ({self.where})" if self.where else "")

    def to_message(self) -> dict[str, Any]:
        """Return this call as a JSON value, which is sent to the other ranks if calls differ."""
        lines, details = list(self.lines[:_MOST_LINES]), list(self.details())[:_MOST_LINES]
        return {"what": self.what, "where": self.where, "lines": lines, "details": details, "digest": self.digest}


def make_call(
    what: str,
    where: str = "",
    *,
    lines: Iterable[str] = (),
    key: str = "",
    details: Callable[[], Iterable[str]] = tuple,
) -> Call:
    """Return a Call with these texts. ``key`` is compared as well, but never shown."""
    listed = tuple(lines)
    return Call(what, where, listed, show(digest(what, key, *listed)), details)


def end_of_region(where: str) -> Call:
    """Return the call that represents the end of a lockstep block."""
    return Call("no more calls, the region ends", where, (), _END_OF_REGION)


def call_ticket(made: Call | None) -> Ticket:
    """Return the ticket with which a rank enters an exchange of the world while it is in, or before, this call."""
    return Ticket("lockstep", made.what, made.where) if made else Ticket("lockstep", "a call of long ago", "")


def mismatch_of_calls(number: int, groups: Sequence[tuple[Sequence[int], Mapping[str, Any]]]) -> Mismatch:
    """Return the error for ranks whose ``number``-th calls differ.

    ``groups`` are pairs of ranks and the message that describes their call. A message has the keys of
    ``Call.to_message``, and these:

    - ``step``: the position in the loops at which a rank makes the call.
    - ``deviates``: whether that position is unusual.
    - ``frames``: the rank's functions and lines.
    """
    reported, remedy = _describe_difference(groups)
    deviating = [rank for ranks, words in groups for rank in ranks if words["deviates"]]
    is_usual = not deviating and all(words["digest"] != _END_OF_REGION for _, words in groups)
    if is_usual and (why := divergence_reason([(ranks, words["frames"]) for ranks, words in groups])):
        return _mismatch_of(f"call {number} differs: {reported}: {why.text}.", why)
    return Mismatch(
        f"call {number} differs: {reported}.",
        ranks=deviating or minority_ranks(ranks for ranks, _ in groups),
        remedy=remedy,
    )


def _mismatch_of(text: str, why: DivergenceReason) -> Mismatch:
    return (CollectiveOnOneRank if why.is_guarded else Mismatch)(text, ranks=why.ranks, remedy=why.remedy)


def _describe_difference(groups: Sequence[tuple[Sequence[int], Mapping[str, Any]]]) -> tuple[str, str]:
    first = groups[0][1]
    if len({words["digest"] for _, words in groups}) == 1:
        return _describe_each_group(
            groups, lambda words: ", ".join(filter(None, [f"{words['what']}{_location_text(words)}", words["step"]]))
        ), LEFT_OUT
    if any(words["what"] != first["what"] for _, words in groups):
        left = any(words["digest"] == _END_OF_REGION for _, words in groups)
        return _describe_each_group(
            groups, lambda words: f"{words['what']}{_location_text(words)}"
        ), EQUAL_STEPS if left else ONE_ORDER
    if reported := _first_line(groups, "lines"):
        return f"{first['what']}: {reported}", ONE_ORDER
    if any(words["where"] != first["where"] for _, words in groups):
        reported = _describe_each_group(groups, lambda words: words["where"] or "no line")
        return f"{first['what']} starts from different lines: {reported}", f"{ONE_ORDER} {_LINES}"
    if reported := _first_line(groups, "details"):
        return f"{first['what']} is not one program: {reported}", _CODE
    reported = _describe_each_group(groups, lambda words: f"program {words['digest'][:8]}")
    same = "all but its large constants" if first["details"] else "its arguments and collectives"
    return f"{first['what']}{_location_text(first)} is not one program, though {same} are alike: {reported}", _CODE


def _first_line(groups: Sequence[tuple[Sequence[int], Mapping[str, Any]]], key: str) -> str:
    """Return the first line that differs, with its text in each group of ranks; "" if no line differs."""
    for index in range(max(len(words[key]) for _, words in groups)):
        if len({_line_or_end(words[key], index) for _, words in groups}) > 1:
            return _describe_each_group(
                groups, lambda words, at=index: f"{_line_or_end(words[key], at)}{_location_text(words)}"
            )
    return ""


def _describe_each_group(groups: Sequence[tuple[Sequence[int], Mapping[str, Any]]], words: Any) -> str:
    reports = by_claim((rank, words(call_words)) for ranks, call_words in groups for rank in ranks)
    return describe_groups(reports.items())


def _line_or_end(lines: Sequence[str], index: int) -> str:
    return lines[index] if index < len(lines) else "nothing more"


def _location_text(words: Mapping[str, Any]) -> str:
    return f" ({words['where']})" if words["where"] else ""


def missing_ranks_error(
    rank: int, departures: Sequence[int], *, number: int, made: Call | None, frames: Frames
) -> Mismatch:
    """Return the error of a rank that is in a call, or about to make it, while the ranks ``departures`` have ended."""
    mine = f"call {number}" + (f", {made}" if made else "")
    left = f"{name_ranks(departures)} {'has' if len(departures) == 1 else 'have'} ended after {number - 1} calls"
    begin = f"rank {rank}: lockstep: {left}; rank {rank} is in {mine}"
    if why := guard_of([rank], frames):
        return _mismatch_of(f"{begin}: {why.text}.", why)
    return Mismatch(f"{begin}: {name_ranks(departures)} left early.", ranks=departures, remedy=EQUAL_STEPS)
