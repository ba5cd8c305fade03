"""Describe a call that ranks make together, and build the Mismatch for calls that differ.

The error says which rank makes which call, and at which line. A rank's position in the call sequence is counted in
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
from allranks.gate.lockstep.branches import EQUAL_STEPS, DivergenceReason, Frames, divergence_reason, reason_of_guard
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
class GroupCall:
    """A call that all ranks of a group make together.

    ``what`` is a description in one line, ``lines`` the full one. ``where`` is the user's line that starts it.
    ``digest`` is equal on two ranks if and only if they make the same call. ``details()`` returns more lines, and is
    called only if ranks differ.
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
    summary: str,
    call_line: str = "",
    *,
    lines: Iterable[str] = (),
    hidden_key: str = "",
    more_details: Callable[[], Iterable[str]] = tuple,
) -> GroupCall:
    """Return a GroupCall with these texts. ``hidden_key`` is compared between ranks as well, but never shown."""
    listed = tuple(lines)
    return GroupCall(summary, call_line, listed, show(digest(summary, hidden_key, *listed)), more_details)


def make_region_end(call_line: str) -> GroupCall:
    """Return the call that represents the end of a lockstep block."""
    return GroupCall("no more calls, the region ends", call_line, (), _END_OF_REGION)


def ticket_of_call(group_call: GroupCall | None) -> Ticket:
    """Return the ticket (what a rank reports of its position) with which a rank enters an exchange during or before
    this call.
    """
    return (
        Ticket("lockstep", group_call.what, group_call.where)
        if group_call
        else Ticket("lockstep", "a call of long ago", "")
    )


def mismatch_of_calls(call_number: int, groups: Sequence[tuple[Sequence[int], Mapping[str, Any]]]) -> Mismatch:
    """Return the error for ranks whose ``call_number``-th calls differ.

    ``groups`` are pairs of ranks and the message that describes their call. A message has the keys of
    ``GroupCall.to_message``, and these:

    - ``step``: the position in the loops at which a rank makes the call.
    - ``deviates``: whether that position is unusual.
    - ``frames``: the rank's functions and lines.
    """
    reported, remedy = _describe_difference(groups)
    deviating = [rank for ranks, words in groups for rank in ranks if words["deviates"]]
    is_usual = not deviating and all(words["digest"] != _END_OF_REGION for _, words in groups)
    if is_usual and (why := divergence_reason([(ranks, words["frames"]) for ranks, words in groups])):
        return _mismatch_of(f"call {call_number} differs: {reported}: {why.text}.", why)
    return Mismatch(
        f"call {call_number} differs: {reported}.",
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
    rank: int, ended_ranks: Sequence[int], *, call_number: int, group_call: GroupCall | None, frames: Frames
) -> Mismatch:
    """Return the error of a rank that is in a call, or about to make it, while the ranks ``ended_ranks`` have ended."""
    mine = f"call {call_number}" + (f", {group_call}" if group_call else "")
    left = f"{name_ranks(ended_ranks)} {'has' if len(ended_ranks) == 1 else 'have'} ended after {call_number - 1} calls"
    begin = f"rank {rank}: lockstep: {left}; rank {rank} is in {mine}"
    if why := reason_of_guard([rank], frames):
        return _mismatch_of(f"{begin}: {why.text}.", why)
    return Mismatch(f"{begin}: {name_ranks(ended_ranks)} left early.", ranks=ended_ranks, remedy=EQUAL_STEPS)
