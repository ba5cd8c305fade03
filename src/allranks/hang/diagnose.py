"""Diagnose for whom all ranks wait: from what is known of every rank to a verdict on each. Pure.

Theory. A rank is *ended* (it raised, died, or left), *mute* (its process exists, but its heartbeat thread does not
answer: stopped, or in a call that holds the GIL), *waiting* (in a collective or an exchange) or *outside* (data, files,
Python). Waiting ranks wait for ranks that are not with them, so the culprits are the first of these that exist:

1. ranks that raised or died;
2. ranks that are mute;
3. ranks that left, if others wait; where most left, those that wait: they make a call that the others do not;
4. outside ranks, if others wait, except those that are ahead of a waiting rank, or with which none of the waiting
   ranks moves data;
5. where all wait: ranks of which each receives from the next, or sends to it, in a ring; ranks of which one moves data
   with another that does not; ranks that are under a condition on the rank, if fewer than half are; ranks that made a
   call that is not the program's (``calls``); ranks that have entered fewer calls than most, or more than most; else
   ranks in another call than most;
6. where all wait in the same call: none. It is the network, the device, or a long program;
7. where none waits: the outside ranks without progress; where most are at one place, those that are not there (an
   unknown wait, in which most are).

What the culprits do tells a hang from a rank that only takes long (``Diagnosis.at_work``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from allranks.hang.calls import NO_CALLS, Calls, odd_one
from allranks.hang.heartbeat import Heartbeat
from allranks.world.claims import by_claim

Verdict = Literal[
    "healthy", "waiting", "working", "stuck", "behind", "ahead", "elsewhere", "stopped", "frozen", "silent", "dead",
    "raised", "left", "unknown",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of one rank.

    ``heartbeat`` is its last heartbeat, ``fresh`` if it answers now. ``ended`` says how it ended, "" where that is
    unknown. ``process`` is the kernel's letter for the state of its process (proc(5); ``X``: there is none), where a
    rank of its machine could read it. ``calls`` are its last collectives, ``branch`` is the condition on the rank under
    which it is. ``is_written``: C wrote a moment ago where the rank is.
    """

    rank: int
    heartbeat: Heartbeat | None = None
    fresh: bool = True
    ended: str = ""
    process: str = ""
    calls: Calls = NO_CALLS
    branch: str = ""
    is_written: bool = False


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """``verdicts`` in rank order; ``culprits`` are those for whom the ``waiting`` ranks wait, perhaps none.

    ``at_work``: every culprit does something, so that the wait of the others may end.
    """

    verdicts: tuple[Verdict, ...]
    culprits: tuple[int, ...]
    waiting: tuple[int, ...]
    at_work: bool = False


def diagnose(seen: Sequence[Seen], *, limit: float) -> Diagnosis:
    """Judge all ranks, given in rank order; a rank without a sign for nearly ``limit`` seconds makes no progress."""
    limit *= _NEARLY
    verdicts = [_judge_one(one, limit) for one in seen]
    heartbeats = {
        one.rank: one.heartbeat
        for one, verdict in zip(seen, verdicts, strict=True)
        if one.heartbeat and verdict in _LIVES
    }
    waiting = frozenset(rank for rank, heartbeat in heartbeats.items() if heartbeat.waits)
    culprits, role = _culprits(verdicts, heartbeats, waiting, limit=limit, seen=seen)
    at_work = bool(culprits) and all(rank in heartbeats and heartbeats[rank].at_work(limit) for rank in culprits)
    if role is not None:
        for rank in culprits:
            verdicts[rank] = "working" if heartbeats[rank].at_work(limit) else role
    for rank in waiting.difference(culprits) if culprits else ():
        if verdicts[rank] == "healthy" and heartbeats[rank].seconds_in_place >= limit:
            verdicts[rank] = "waiting"
    return Diagnosis(tuple(verdicts), culprits, tuple(sorted(waiting.difference(culprits))), at_work)


# Ranks that wait for one another do not begin at the same moment.
_NEARLY = 0.5
_LIVES = frozenset(["healthy", "waiting", "stuck"])
_FAILED = frozenset(["raised", "dead"])
_MUTE = frozenset(["stopped", "frozen", "silent"])
_LEFT = frozenset(["left"])


def _judge_one(one: Seen, limit: float) -> Verdict:
    """Judge a rank without the others."""
    if one.ended:
        return (
            "left" if one.ended.startswith("has left") else "raised" if one.ended.startswith("has failed") else "dead"
        )
    if one.process in ("X", "Z"):
        return "dead"
    if one.process in ("T", "t"):
        return "stopped"
    if not one.fresh or one.heartbeat is None:
        return "frozen" if one.process else "silent"
    if one.heartbeat.still < limit:
        return "healthy"
    return "waiting" if one.heartbeat.waits else "stuck"


def _culprits(
    verdicts: Sequence[Verdict],
    heartbeats: Mapping[int, Heartbeat],
    waiting: Collection[int],
    *,
    limit: float,
    seen: Sequence[Seen],
) -> tuple[tuple[int, ...], Verdict | None]:
    """Return the culprits, and a verdict on them where it differs from that without the others."""
    if sum(verdict in _LEFT for verdict in verdicts) > len(heartbeats) == len(waiting) > 0:
        return tuple(waiting), "ahead"
    for kinds in (_FAILED, _MUTE, _LEFT if waiting else frozenset[Verdict]()):
        if found := tuple(rank for rank, verdict in enumerate(verdicts) if verdict in kinds):
            return found, None
    still = tuple(rank for rank, heartbeat in heartbeats.items() if heartbeat.still >= limit)
    if not still:
        return (), None
    outside = [rank for rank in heartbeats if rank not in waiting]
    if not outside:
        return _apart(heartbeats, seen)
    if waiting:
        return _late(outside, waiting, heartbeats), "stuck"
    if len(still) < len(outside):
        return still, "stuck"
    return _crowd({rank: heartbeat.where for rank, heartbeat in heartbeats.items()}) or still, "stuck"


def _late(outside: Sequence[int], waiting: Collection[int], heartbeats: Mapping[int, Heartbeat]) -> tuple[int, ...]:
    """Return the outside ranks that have not been where the waiting ones are; all where calls are not counted."""
    partners = {heartbeats[rank].peer for rank in waiting}
    if -1 not in partners and (wanted := tuple(rank for rank in outside if rank in partners)):
        return wanted
    orders = [heartbeats[rank].order for rank in waiting]
    farthest = max(orders) if all(orders) else 0
    return tuple(rank for rank in outside if heartbeats[rank].order < farthest) or tuple(outside)


def _apart(heartbeats: Mapping[int, Heartbeat], seen: Sequence[Seen]) -> tuple[tuple[int, ...], Verdict]:
    """Return, where all ranks wait, those that wait for something else."""
    if ring := _ring(heartbeats):
        return ring, "elsewhere"
    if astray := {
        rank: heartbeat.peer
        for rank, heartbeat in heartbeats.items()
        if heartbeat.peer in heartbeats and not _is_matched(rank, heartbeats)
    }:
        return tuple(sorted({*astray, *astray.values()})), "elsewhere"
    alone = tuple(one.rank for one in seen if one.branch and one.rank in heartbeats)
    if (
        alone
        and 2 * len(alone) <= len(heartbeats)
        and len({(heartbeat.order, heartbeat.where) for heartbeat in heartbeats.values()}) > 1
    ):
        return alone, "ahead"
    if odd := _odd(heartbeats, {one.rank: one.calls for one in seen}):
        return odd, "ahead"
    orders = {rank: heartbeat.order for rank, heartbeat in heartbeats.items()}
    if all(orders.values()) and len(set(orders.values())) > 1:
        usual, ranks = Counter(orders.values()).most_common(1)[0]
        ahead = tuple(rank for rank, order in orders.items() if order > usual)
        behind = tuple(rank for rank, order in orders.items() if order < usual)
        if 2 * ranks <= len(heartbeats) or behind:
            return behind or tuple(rank for rank, order in orders.items() if order < max(orders.values())), "behind"
        return ahead, "ahead"
    if all(orders.values()):
        return _crowd({rank: (heartbeat.phase, heartbeat.what) for rank, heartbeat in heartbeats.items()}), "elsewhere"
    return _crowd(
        {rank: (heartbeat.phase, heartbeat.what, heartbeat.where) for rank, heartbeat in heartbeats.items()}
    ), "elsewhere"


def _is_matched(rank: int, heartbeats: Mapping[int, Heartbeat]) -> bool:
    """Return whether the peer of a rank sends what that rank receives, or receives what it sends."""
    mine, theirs = heartbeats[rank], heartbeats[heartbeats[rank].peer]
    return theirs.peer == rank and theirs.is_receiving is not mine.is_receiving


def _ring(heartbeats: Mapping[int, Heartbeat]) -> tuple[int, ...]:
    """Return ranks of which each receives from the next, or each sends to it, and the last from or to the first."""
    for first in heartbeats:
        path, rank = [first], heartbeats[first].peer
        while rank in heartbeats and rank not in path and heartbeats[rank].peer >= 0:
            path.append(rank)
            rank = heartbeats[rank].peer
        if rank == first and len({heartbeats[one].is_receiving for one in path}) == 1:
            return tuple(sorted(path))
    return ()


def _odd(heartbeats: Mapping[int, Heartbeat], calls: Mapping[int, Calls]) -> tuple[int, ...]:
    """Return the ranks that made a call that is not the program's, where two groups are equally large."""
    kinds = by_claim((rank, calls[rank]) for rank in heartbeats)
    if len(kinds) != 2 or not all(kinds) or len({len(ranks) for ranks in kinds.values()}) != 1:
        return ()
    found = odd_one(*kinds)
    return () if found is None else tuple(list(kinds.values())[found])


def _crowd(places: Mapping[int, Hashable]) -> tuple[int, ...]:
    """Return the ranks that are not where most are; all, where no place has most; none, where all are at one place."""
    crowds = Counter(places.values()).most_common(2)
    if len(crowds) == 2 and crowds[0][1] == crowds[1][1]:
        return tuple(places)
    return tuple(rank for rank, place in places.items() if place != crowds[0][0])
