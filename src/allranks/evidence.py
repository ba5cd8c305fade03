"""Weigh the message of a failure: is it a cause, or the consequence of another rank's end?

Theory. Every rank's end makes its peers fail, a moment later. Time does not show which rank was first: on a busy
machine the end of a process is seen later than the errors that it causes. But the message of an error shows it. Only
the peer of a rank that has ended reports "Connection closed by peer". So another rank ended before it, whatever the
clocks show. The weights, from a cause to what only another rank's end can cause:

| weight | message | reported by |
|---|---|---|
| CAUSE | any other message: an exception, a mismatch of sizes, no memory | the rank that was first |
| UNCLEAR | a connection broke, of whatever kind; a runtime aborts without a reason | either |
| WAITING | a collective, a barrier or a key timed out | a rank that waited for one that hangs, or has ended |
| CONSEQUENCE | a peer closed its connection; a task of JAX died; RankDied | the peer of a rank that ended |

The lowest weight is first, and among equals the earliest. The tables of `allranks.messages` hold the
messages of libraries and their weights; the weights of our own errors are here. An exception that was raised because of
another one, or while another was handled, has the weight of that one.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence

from allranks.failure import Failure
from allranks.messages.book import BOOK
from allranks.messages.known import Kind


class Weight(enum.IntEnum):
    """How far from the cause: the lower, the nearer."""

    CAUSE = 0
    UNCLEAR = 1
    WAITING = 2
    CONSEQUENCE = 3


OF_KIND: Mapping[Kind, Weight] = {
    "cause": Weight.CAUSE,
    "unclear": Weight.UNCLEAR,
    "waiting": Weight.WAITING,
    "consequence": Weight.CONSEQUENCE,
}
OURS = {
    "Mismatch": Weight.CAUSE,
    "CollectiveOnOneRank": Weight.CAUSE,
    "RankDied": Weight.CONSEQUENCE,
    "RemoteError": Weight.CONSEQUENCE,
    "StoreError": Weight.UNCLEAR,
    "BarrierTimeout": Weight.WAITING,
    "KeyTimeout": Weight.WAITING,
}
LEFT = "left with exit code"


def weight_of_text(text: str) -> Weight | None:
    """Return what a line says; None where it is not known."""
    name = text.partition(":")[0].rpartition(".")[2]
    if name in OURS:
        return OURS[name]
    known = BOOK.find(text.encode(errors="backslashreplace"))
    return None if known is None else OF_KIND.get(known.kind)


def weight_of(failure: Failure, lines: Sequence[str] = ()) -> Weight:
    """Return how a failure weighs; ``lines`` are the last that its rank printed before.

    A rank that leaves with an exit code says nothing itself, but may have printed why.
    """
    own = weight_of_text(failure.what)
    if own is Weight.CAUSE:
        return own
    before = failure.before.splitlines()
    found = [own, *map(weight_of_text, before)]
    if failure.what.startswith(LEFT) and not before:
        found.append(weight_of_lines(lines))
    return max((weight for weight in found if weight is not None), default=Weight.CAUSE)


def weight_of_lines(lines: Iterable[str]) -> Weight | None:
    """Return the weight of the last line that is known, of those that a rank printed; None where none is."""
    weights = [weight for line in lines if (weight := weight_of_text(line)) is not None]
    return weights[-1] if weights else None


def first_of(failures: Iterable[Failure]) -> Failure:
    """Return the failure that caused the others: that of the lowest weight, and among equals the earliest."""
    return min(failures, key=lambda failure: (weight_of(failure), failure.when, failure.rank))
