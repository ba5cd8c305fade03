"""Diagnose whom all ranks wait for: from what is known of every rank to a verdict on each. Pure.

Theory. A rank is *ended* (it raised, died, or left), *mute* (its process is there, but its heartbeat thread does not
answer: stopped, or in a call that holds Python's lock), *waiting* (in a collective or a meeting) or *outside* (data,
files, Python). Waiting ranks wait for whoever is not with them, so the culprits are the first of these that exist:

1. ranks that raised or died;
2. ranks that are mute;
3. ranks that left, if anybody waits; where most left, those that wait: they make a call that the others do not;
4. outside ranks, if anybody waits; those that are ahead of a waiting rank, or with which none of the waiting moves
   data, are not what it waits for;
5. where all wait: ranks of which each receives from the next, or sends to it, in a ring; those of which one moves data
   with another that does not; those that alone are below a condition on the rank, if not most are; those that made a
   call that is not the program's (``calls``); those that have entered fewer calls than most, or more than most; else
   those in another call than most;
6. where all wait in the same call: nobody. It is the network, the device, or a long program;
7. where nobody waits: the outside ranks that stand still; where most stand at one place, those that are not there
   (an unknown wait, in which most are).

What the culprits do tells a hang from a rank that merely takes long (``Diagnosis.at_work``).
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

    ``beat`` is its last, ``fresh`` if it answers now. ``ended`` says how it ended, ``""`` where that is not known.
    ``process`` is the kernel's letter for the state of its process (proc(5); ``X``: there is none), where a rank of
    its machine could look. ``calls`` are its last collectives, ``branch`` is the condition on
    the rank below which it is. ``is_written``:
    where the ``beat`` is was written by C, a moment ago.
    """

    rank: int
    beat: Heartbeat | None = None
    fresh: bool = True
    ended: str = ""
    process: str = ""
    calls: Calls = NO_CALLS
    branch: str = ""
    is_written: bool = False


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """``verdicts`` in rank order; ``culprits`` are who the ``waiting`` ranks wait for, perhaps nobody that is known.

    ``at_work``: every culprit does something, so that the others' waiting may end.
    """

    verdicts: tuple[Verdict, ...]
    culprits: tuple[int, ...]
    waiting: tuple[int, ...]
    at_work: bool = False


def diagnose(seen: Sequence[Seen], *, limit: float) -> Diagnosis:
    """Judge all ranks, given in rank order; a rank that shows nothing for nearly ``limit`` seconds stands still."""
    limit *= _NEARLY
    verdicts = [_alone(one, limit) for one in seen]
    beats = {one.rank: one.beat for one, verdict in zip(seen, verdicts, strict=True) if one.beat and verdict in _LIVES}
    waiting = frozenset(rank for rank, beat in beats.items() if beat.waits)
    culprits, role = _culprits(verdicts, beats, waiting, limit=limit, seen=seen)
    at_work = bool(culprits) and all(rank in beats and beats[rank].at_work(limit) for rank in culprits)
    if role is not None:
        for rank in culprits:
            verdicts[rank] = "working" if beats[rank].at_work(limit) else role
    for rank in waiting.difference(culprits) if culprits else ():
        if verdicts[rank] == "healthy" and beats[rank].stood >= limit:
            verdicts[rank] = "waiting"
    return Diagnosis(tuple(verdicts), culprits, tuple(sorted(waiting.difference(culprits))), at_work)


# Ranks that wait for one another do not begin at the same moment.
_NEARLY = 0.5
_LIVES = frozenset(["healthy", "waiting", "stuck"])
_FAILED = frozenset(["raised", "dead"])
_MUTE = frozenset(["stopped", "frozen", "silent"])
_LEFT = frozenset(["left"])


def _alone(one: Seen, limit: float) -> Verdict:
    """Judge a rank without the others."""
    if one.ended:
        return (
            "left" if one.ended.startswith("has left") else "raised" if one.ended.startswith("has failed") else "dead"
        )
    if one.process in ("X", "Z"):
        return "dead"
    if one.process in ("T", "t"):
        return "stopped"
    if not one.fresh or one.beat is None:
        return "frozen" if one.process else "silent"
    if one.beat.still < limit:
        return "healthy"
    return "waiting" if one.beat.waits else "stuck"


def _culprits(
    verdicts: Sequence[Verdict],
    beats: Mapping[int, Heartbeat],
    waiting: Collection[int],
    *,
    limit: float,
    seen: Sequence[Seen],
) -> tuple[tuple[int, ...], Verdict | None]:
    """Return who is waited for; and what that makes of them, where they are not what they are without the others."""
    if sum(verdict in _LEFT for verdict in verdicts) > len(beats) == len(waiting) > 0:
        return tuple(waiting), "ahead"
    for kinds in (_FAILED, _MUTE, _LEFT if waiting else frozenset[Verdict]()):
        if found := tuple(rank for rank, verdict in enumerate(verdicts) if verdict in kinds):
            return found, None
    still = tuple(rank for rank, beat in beats.items() if beat.still >= limit)
    if not still:
        return (), None
    outside = [rank for rank in beats if rank not in waiting]
    if not outside:
        return _apart(beats, seen)
    if waiting:
        return _late(outside, waiting, beats), "stuck"
    if len(still) < len(outside):
        return still, "stuck"
    return _crowd({rank: beat.where for rank, beat in beats.items()}) or still, "stuck"


def _late(outside: Sequence[int], waiting: Collection[int], beats: Mapping[int, Heartbeat]) -> tuple[int, ...]:
    """Return the outside ranks that have not been where the waiting ones are; all, where nobody counts."""
    partners = {beats[rank].peer for rank in waiting}
    if -1 not in partners and (wanted := tuple(rank for rank in outside if rank in partners)):
        return wanted
    orders = [beats[rank].order for rank in waiting]
    farthest = max(orders) if all(orders) else 0
    return tuple(rank for rank in outside if beats[rank].order < farthest) or tuple(outside)


def _apart(beats: Mapping[int, Heartbeat], seen: Sequence[Seen]) -> tuple[tuple[int, ...], Verdict]:
    """All wait: return those that wait for something else."""
    if ring := _ring(beats):
        return ring, "elsewhere"
    if astray := {rank: beat.peer for rank, beat in beats.items() if beat.peer in beats and not _meets(rank, beats)}:
        return tuple(sorted({*astray, *astray.values()})), "elsewhere"
    alone = tuple(one.rank for one in seen if one.branch and one.rank in beats)
    if alone and 2 * len(alone) <= len(beats) and len({(beat.order, beat.where) for beat in beats.values()}) > 1:
        return alone, "ahead"
    if odd := _odd(beats, {one.rank: one.calls for one in seen}):
        return odd, "ahead"
    orders = {rank: beat.order for rank, beat in beats.items()}
    if all(orders.values()) and len(set(orders.values())) > 1:
        usual, ranks = Counter(orders.values()).most_common(1)[0]
        ahead = tuple(rank for rank, order in orders.items() if order > usual)
        behind = tuple(rank for rank, order in orders.items() if order < usual)
        if 2 * ranks <= len(beats) or behind:
            return behind or tuple(rank for rank, order in orders.items() if order < max(orders.values())), "behind"
        return ahead, "ahead"
    if all(orders.values()):
        return _crowd({rank: (beat.phase, beat.what) for rank, beat in beats.items()}), "elsewhere"
    return _crowd({rank: (beat.phase, beat.what, beat.where) for rank, beat in beats.items()}), "elsewhere"


def _meets(rank: int, beats: Mapping[int, Heartbeat]) -> bool:
    """Say whether the peer of a rank sends what that receives, or receives what that sends."""
    mine, theirs = beats[rank], beats[beats[rank].peer]
    return theirs.peer == rank and theirs.is_receiving is not mine.is_receiving


def _ring(beats: Mapping[int, Heartbeat]) -> tuple[int, ...]:
    """Return ranks of which each receives from the next, or each sends to it, and the last from or to the first."""
    for first in beats:
        path, rank = [first], beats[first].peer
        while rank in beats and rank not in path and beats[rank].peer >= 0:
            path.append(rank)
            rank = beats[rank].peer
        if rank == first and len({beats[one].is_receiving for one in path}) == 1:
            return tuple(sorted(path))
    return ()


def _odd(beats: Mapping[int, Heartbeat], calls: Mapping[int, Calls]) -> tuple[int, ...]:
    """Return the ranks that made a call that is not the program's, where as many are of one kind as of another."""
    kinds = by_claim((rank, calls[rank]) for rank in beats)
    if len(kinds) != 2 or not all(kinds) or len({len(ranks) for ranks in kinds.values()}) != 1:
        return ()
    found = odd_one(*kinds)
    return () if found is None else tuple(list(kinds.values())[found])


def _crowd(places: Mapping[int, Hashable]) -> tuple[int, ...]:
    """Return the ranks that are not where most are; all, where most are nowhere; none, where all are at one place."""
    crowds = Counter(places.values()).most_common(2)
    if len(crowds) == 2 and crowds[0][1] == crowds[1][1]:
        return tuple(places)
    return tuple(rank for rank, place in places.items() if place != crowds[0][0])
