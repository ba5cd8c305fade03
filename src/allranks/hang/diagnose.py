"""Diagnose a hang: from what is known of every rank, find the ranks for which the others wait. This module does no I/O.

A rank is in one of four states:

- *ended*: it raised, died, or left.
- *mute*: its process exists, but its heartbeat thread does not answer. It is stopped, or a call holds the GIL.
- *waiting*: it is in a collective or an exchange.
- *outside*: it is elsewhere, in data loading, files or Python code.

Waiting ranks wait for ranks that are not in the same call. So the culprits, the ranks that cause the hang, are the
first of these that exist:

1. ranks that raised or died;
2. ranks that are mute;
3. ranks that left, if others wait. If most ranks left, the waiting ranks: they make a call that the others do not;
4. outside ranks, if others wait. Not those that are ahead of a waiting rank, or with which no waiting rank moves data;
5. if all ranks wait, the first of these that exist:

   - a ring of ranks of which each receives from the next, or each sends to the next;
   - two ranks of which one moves data with the other, but the other does not move data with the first;
   - ranks under a condition on the rank, if at most half of the ranks are;
   - ranks that made a call that the program does not usually make (``calls``);
   - ranks that have entered fewer or more calls than most;
   - ranks in another call than most;

6. if all ranks wait in the same call: none. The network or the device hangs, or a program takes long;
7. if no rank waits: the outside ranks without progress. If most ranks are at one line, the ranks that are elsewhere:
   that line is then a wait that this watch does not know.

``Diagnosis.at_work`` tells a hang from a culprit that only takes long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from allranks.hang.calls import NO_CALLS, RecentCalls, odd_one
from allranks.hang.heartbeat import Heartbeat
from allranks.world.claims import by_claim

Verdict = Literal[
    "healthy", "waiting", "working", "stuck", "behind", "ahead", "elsewhere", "stopped", "frozen", "silent", "dead",
    "raised", "left", "unknown",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class RankObservation:
    """What is known of one rank.

    - ``heartbeat`` is its last heartbeat, ``fresh`` if the rank answers now.
    - ``ended`` says how the rank ended; "" if it has not ended, or that is unknown.
    - ``process`` is the kernel's letter for the state of its process (proc(5); ``X`` for no process), if a rank of its
      machine could read the letter.
    - ``calls`` are its last collectives.
    - ``branch`` is the condition on the rank under which its code runs; "" for none.
    - ``is_written``: C code has just written the rank's stack, so ``heartbeat`` says where the rank is now.
    """

    rank: int
    heartbeat: Heartbeat | None = None
    fresh: bool = True
    ended: str = ""
    process: str = ""
    calls: RecentCalls = NO_CALLS
    branch: str = ""
    is_written: bool = False


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The verdicts in rank order, and the ranks that caused the hang (``culprits``; perhaps none).

    The ``waiting`` ranks wait for the culprits. ``at_work``: every culprit still does something, so that the wait may
    end.
    """

    verdicts: tuple[Verdict, ...]
    culprits: tuple[int, ...]
    waiting: tuple[int, ...]
    at_work: bool = False


def diagnose(seen: Sequence[RankObservation], *, limit: float) -> Diagnosis:
    """Judge all ranks, given in rank order, and return the diagnosis.

    A rank without a sign of progress for nearly ``limit`` seconds makes no progress.
    """
    limit *= _NEARLY
    verdicts = [_judge_one(one, limit) for one in seen]
    heartbeats = {
        one.rank: one.heartbeat
        for one, verdict in zip(seen, verdicts, strict=True)
        if one.heartbeat and verdict in _LIVES
    }
    waiting = frozenset(rank for rank, heartbeat in heartbeats.items() if heartbeat.waits)
    culprits, role = _find_culprits(verdicts, heartbeats, waiting, limit=limit, seen=seen)
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


def _judge_one(one: RankObservation, limit: float) -> Verdict:
    """Return the verdict on one rank without regard to the other ranks."""
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


def _find_culprits(
    verdicts: Sequence[Verdict],
    heartbeats: Mapping[int, Heartbeat],
    waiting: Collection[int],
    *,
    limit: float,
    seen: Sequence[RankObservation],
) -> tuple[tuple[int, ...], Verdict | None]:
    """Return the ranks that caused the hang, and a verdict on them if ``_judge_one`` gives another one; else None."""
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
        return _diverged_ranks(heartbeats, seen)
    if waiting:
        return _awaited_ranks(outside, waiting, heartbeats), "stuck"
    if len(still) < len(outside):
        return still, "stuck"
    return _ranks_elsewhere({rank: heartbeat.where for rank, heartbeat in heartbeats.items()}) or still, "stuck"


def _awaited_ranks(
    outside: Sequence[int], waiting: Collection[int], heartbeats: Mapping[int, Heartbeat]
) -> tuple[int, ...]:
    """Return those of the ranks outside collectives for which the waiting ranks wait.

    These are the ranks with which a waiting rank moves data, or else the ranks that have not reached the call of the
    waiting ranks. If calls are not counted, all ranks of ``outside`` are returned.
    """
    partners = {heartbeats[rank].peer for rank in waiting}
    if -1 not in partners and (wanted := tuple(rank for rank in outside if rank in partners)):
        return wanted
    orders = [heartbeats[rank].order for rank in waiting]
    farthest = max(orders) if all(orders) else 0
    return tuple(rank for rank in outside if heartbeats[rank].order < farthest) or tuple(outside)


def _diverged_ranks(
    heartbeats: Mapping[int, Heartbeat], seen: Sequence[RankObservation]
) -> tuple[tuple[int, ...], Verdict]:
    """Return, if all ranks wait, the ranks that caused the hang, and the verdict on them.

    These ranks wait for something else than the other ranks.
    """
    if ring := _find_ring(heartbeats):
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
    if odd := _unusual_callers(heartbeats, {one.rank: one.calls for one in seen}):
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
        return _ranks_elsewhere(
            {rank: (heartbeat.phase, heartbeat.what) for rank, heartbeat in heartbeats.items()}
        ), "elsewhere"
    return _ranks_elsewhere(
        {rank: (heartbeat.phase, heartbeat.what, heartbeat.where) for rank, heartbeat in heartbeats.items()}
    ), "elsewhere"


def _is_matched(rank: int, heartbeats: Mapping[int, Heartbeat]) -> bool:
    """Return whether a rank and its peer fit together: one sends to the other, and the other receives."""
    mine, theirs = heartbeats[rank], heartbeats[heartbeats[rank].peer]
    return theirs.peer == rank and theirs.is_receiving is not mine.is_receiving


def _find_ring(heartbeats: Mapping[int, Heartbeat]) -> tuple[int, ...]:
    """Return the ranks of a ring: each receives from the next, or each sends to the next; () if there is no ring."""
    for first in heartbeats:
        path, rank = [first], heartbeats[first].peer
        while rank in heartbeats and rank not in path and heartbeats[rank].peer >= 0:
            path.append(rank)
            rank = heartbeats[rank].peer
        if rank == first and len({heartbeats[one].is_receiving for one in path}) == 1:
            return tuple(sorted(path))
    return ()


def _unusual_callers(heartbeats: Mapping[int, Heartbeat], calls: Mapping[int, RecentCalls]) -> tuple[int, ...]:
    """Return the ranks that made a call that the program does not usually make, if two equally large groups differ."""
    kinds = by_claim((rank, calls[rank]) for rank in heartbeats)
    if len(kinds) != 2 or not all(kinds) or len({len(ranks) for ranks in kinds.values()}) != 1:
        return ()
    found = odd_one(*kinds)
    return () if found is None else tuple(list(kinds.values())[found])


def _ranks_elsewhere(places: Mapping[int, Hashable]) -> tuple[int, ...]:
    """Return the ranks that are not at the most frequent of these places in the code.

    Return all ranks if no place is the most frequent one, and none if all ranks are at one place.
    """
    crowds = Counter(places.values()).most_common(2)
    if len(crowds) == 2 and crowds[0][1] == crowds[1][1]:
        return tuple(places)
    return tuple(rank for rank, place in places.items() if place != crowds[0][0])
