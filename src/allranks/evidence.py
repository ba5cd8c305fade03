"""Decide from the message of a failure whether it is the cause, or a consequence of another rank's end.

When a rank ends, other ranks fail a moment later. Time does not show which rank was first: on a busy machine the end of
a process is seen later than the errors that it causes. But the message of an error shows it. For example, a rank
reports "Connection closed by peer" only if another rank has ended before it, whatever the clocks show. The weights,
from a cause to a message that only another rank's end can cause:

| weight | message | reported by |
|---|---|---|
| CAUSE | any other message: an exception, a mismatch of sizes, no memory | the rank that was first |
| UNCLEAR | a connection broke, of whatever kind; a runtime aborts without a reason | either |
| WAITING | a collective, a barrier or a key timed out | a rank that waited for one that hangs, or has ended |
| CONSEQUENCE | a peer closed its connection; a task of JAX died; RankDied | the peer of a rank that ended |

The failure with the lowest weight was first; among equal weights, the earliest. The tables of `allranks.messages` have
the messages of libraries and their weights; the weights of our own errors are here. If an exception was raised because
of another exception, or while another was handled, it has the weight of that exception.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence

from allranks.failure import Failure
from allranks.messages.book import BOOK
from allranks.messages.known import Kind


class CauseWeight(enum.IntEnum):
    """How likely a failure is the cause of the others. A lower value is nearer to the cause."""

    CAUSE = 0
    UNCLEAR = 1
    WAITING = 2
    CONSEQUENCE = 3


OF_KIND: Mapping[Kind, CauseWeight] = {
    "cause": CauseWeight.CAUSE,
    "unclear": CauseWeight.UNCLEAR,
    "waiting": CauseWeight.WAITING,
    "consequence": CauseWeight.CONSEQUENCE,
}
OURS = {
    "Mismatch": CauseWeight.CAUSE,
    "CollectiveOnOneRank": CauseWeight.CAUSE,
    "RankDied": CauseWeight.CONSEQUENCE,
    "RemoteError": CauseWeight.CONSEQUENCE,
    "StoreError": CauseWeight.UNCLEAR,
    "BarrierTimeout": CauseWeight.WAITING,
    "KeyTimeout": CauseWeight.WAITING,
}
LEFT = "left with exit code"


def weight_of_text(text: str) -> CauseWeight | None:
    """Return the weight of a line of text, or None if the line is no known message."""
    name = text.partition(":")[0].rpartition(".")[2]
    if name in OURS:
        return OURS[name]
    known = BOOK.find_in_line(text.encode(errors="backslashreplace"))
    return None if known is None else OF_KIND.get(known.kind)


def weight_of(failure: Failure, lines: Sequence[str] = ()) -> CauseWeight:
    """Return the CauseWeight of a failure. ``lines`` are the last lines that its rank printed before it.

    The lines count only for a rank that leaves with an exit code: it reports no reason, but may have printed one.
    """
    own = weight_of_text(failure.what)
    if own is CauseWeight.CAUSE:
        return own
    before = failure.before.splitlines()
    found = [own, *map(weight_of_text, before)]
    if failure.what.startswith(LEFT) and not before:
        found.append(weight_of_lines(lines))
    return max((weight for weight in found if weight is not None), default=CauseWeight.CAUSE)


def weight_of_lines(lines: Iterable[str]) -> CauseWeight | None:
    """Return the weight of the last known message among the lines that a rank printed, or None if none is known."""
    weights = [weight for line in lines if (weight := weight_of_text(line)) is not None]
    return weights[-1] if weights else None


def first_of(failures: Iterable[Failure]) -> Failure:
    """Return the failure that caused the others: the one with the lowest weight; among equal weights, the earliest."""
    return min(failures, key=lambda failure: (weight_of(failure), failure.when, failure.rank))
