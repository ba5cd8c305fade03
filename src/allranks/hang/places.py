"""Find out where the ranks of a job are, for its launcher: at the time limit, or if ranks delay the start or the end.

Ranks with a hang watch answer a query. In the other ranks, CPython itself writes the stacks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from allranks import agent
from allranks.errors import name_ranks
from allranks.failure import Failure
from allranks.hang import endpoint, messages, stacks
from allranks.hang.alarm import HangCase, RankSnapshot
from allranks.hang.diagnose import Diagnosis, RankObservation, Verdict, diagnose
from allranks.hang.heartbeat import Heartbeat
from allranks.hang.sites import Frame, classify_stack, innermost_users_line
from allranks.launch.events import LocateRanks
from allranks.launch.fork_server_main import descendants
from allranks.launch.placement import Placement
from allranks.launch.stall import RankLocations
from allranks.program import HUNG
from allranks.world.progress import WAITS

# Seconds: how long a rank has to answer; and how long one must have made no progress to count, at the time limit.
_ANSWER, _STILL = 1.5, 0.1
_GARBAGE = "Garbage-collecting"
EXIT = "exit"  # the phase of a process whose main thread has ended


@dataclass(frozen=True, slots=True)
class _State:
    """The state of one rank; ``text`` is its stack. The times in ``heartbeat`` are NaN if they are unknown."""

    heartbeat: Heartbeat
    text: str


def locate_ranks(request: LocateRanks, pids: Mapping[int, int], *, placement: Placement) -> RankLocations:
    """Locate the ranks as the launcher's ``request`` demands.

    ``pids`` maps the living ranks of this host to their process ids. Of the ranks of other hosts only what the request
    says is known.
    """
    if not pids:
        return RankLocations(())
    elsewhere = set(range(placement.size)) - set(placement.ranks)
    states = (
        {} if request.reason == "exit" else _query_watched_ranks(pids)
    )  # first: the signal of the others ends a wait
    states |= _dump_stacks({rank: pid for rank, pid in pids.items() if rank not in states}, request)
    known = pids.keys() | elsewhere
    seen = tuple(_observation_of(rank, states, request, known) for rank in range(placement.size))
    diagnosis = _diagnose_request(request, seen, elsewhere)
    snapshots = {rank: RankSnapshot(state.heartbeat, state.text, {}, {}) for rank, state in states.items()}
    case = HangCase(_STILL, seen, snapshots, diagnosis)
    hosts = [placement.hosts[placement.host_of(rank)] for rank in range(placement.size)]
    headline = _headline_of_request(request, case, hosts)
    lines = [headline, *messages.table_and_stacks(case, hidden=elsewhere if request.reason == "time" else ())]
    if not diagnosis.culprits or request.reason == "time":
        return RankLocations(tuple(lines))
    first = diagnosis.culprits[0]
    heartbeat = seen[first].heartbeat
    where = heartbeat.where.partition(" in ")[0] if heartbeat else ""
    failure = Failure(first, hosts[first], headline, time.time(), where=where, exit_code=HUNG)
    return RankLocations(tuple(lines), failure)


def _query_watched_ranks(pids: Mapping[int, int]) -> dict[int, _State]:
    """Query the ranks that have a hang watch, and return the states of those that answer, by rank."""
    ours = {pid: rank for rank, root in pids.items() for pid in (root, *descendants(root))}
    addresses = [one for one in endpoint.known_addresses() if one.pid in ours]
    if not addresses:
        return {}
    query = {"want": "sight"}
    with ThreadPoolExecutor(max_workers=min(32, len(addresses))) as pool:
        answers = list(pool.map(lambda one: endpoint.request(one, query, timeout=_ANSWER), addresses))
    snapshots = {
        ours[one.pid]: RankSnapshot.from_json(got["sight"]) for one, got in zip(addresses, answers, strict=True) if got
    }
    return {
        rank: _State(replace(snapshot.heartbeat, rank=rank), snapshot.stack) for rank, snapshot in snapshots.items()
    }


def _dump_stacks(pids: Mapping[int, int], request: LocateRanks) -> dict[int, _State]:
    """Let CPython write the stacks of these ranks, and return their states by rank."""
    reader: Any = agent.load("allranks_agent_stacks")
    trees = {rank: (root, *descendants(root)) for rank, root in pids.items()}
    found = {rank: next((pid for pid in tree if reader.has_registered(pid)), 0) for rank, tree in trees.items()}
    first = {rank: pid for rank, pid in found.items() if pid}
    texts = reader.read(first.values())
    return {rank: _parse_dump(rank, texts[pid], request) for rank, pid in first.items() if pid in texts}


def _parse_dump(rank: int, text: str, request: LocateRanks) -> _State:
    threads = stacks.threads_of_dump(text)
    frames = threads[-1]
    phase, what = classify_stack(frames)
    if request.reason == "exit" and phase not in WAITS:
        phase, (what, frames) = EXIT, exit_of(text, threads)
    since = request.seconds if request.reason == "exit" else math.nan
    heartbeat = Heartbeat(
        rank, time.time(), phase, what, innermost_users_line(frames), since=since, still=since, alike=since
    )
    return _State(heartbeat, stacks.format_dump(frames))


def exit_of(text: str, threads: Sequence[tuple[Frame, ...]]) -> tuple[str, tuple[Frame, ...]]:
    """Return what delays the end of a process whose main thread has ended, and the stack of what delays it."""
    main = threads[-1]
    if not main:
        return "C, after the end of Python", main
    if _GARBAGE in text.strip().rpartition("\n\n")[2]:
        return "destructor (__del__, or a generator that is closed)", main
    if any(frame.function == "_shutdown" and frame.file.endswith("threading.py") for frame in main):
        others = [thread for thread in threads[:-1] if any(frame.users for frame in thread)]
        return "non-daemon thread", others[0] if others else main
    return "atexit callback", main


def _observation_of(
    rank: int, states: Mapping[int, _State], request: LocateRanks, known: Collection[int]
) -> RankObservation:
    if rank in request.ended or rank not in known:
        return RankObservation(rank, None, False, "has left")
    return RankObservation(rank, states[rank].heartbeat if rank in states else None, rank in states)


def _diagnose_request(request: LocateRanks, seen: Sequence[RankObservation], elsewhere: Collection[int]) -> Diagnosis:
    if request.reason == "time" and elsewhere:  # a host sees its own ranks alone, and cannot say who waits for whom
        states: list[Verdict] = ["stuck" if one.rank in request.culprits else _state_of(one) for one in seen]
        return Diagnosis(tuple(states), (), ())
    if request.reason == "time":
        found = diagnose([_without_progress(one) for one in seen], limit=2 * _STILL)
        if found.waiting or all(one.heartbeat and not math.isnan(one.heartbeat.still) for one in seen):
            return found
        return Diagnosis(tuple("left" if one.ended else "unknown" for one in seen), (), ())
    alive = [one for one in seen if not one.ended]
    if request.reason == "join":
        absent = [one for one in alive if one.rank not in request.waiting]
        culprits = [one.rank for one in absent if not (one.heartbeat and one.heartbeat.waits)] or list(request.ended)
    else:
        culprits = [one.rank for one in alive if not (one.heartbeat and one.heartbeat.waits)]
    waiting = tuple(one.rank for one in alive if one.rank not in culprits)
    verdicts: list[Verdict] = ["stuck" if one.rank in culprits else "left" if one.ended else "waiting" for one in seen]
    return Diagnosis(tuple(verdicts), tuple(culprits), waiting)


def _state_of(one: RankObservation) -> Verdict:
    return "left" if one.ended else "waiting" if one.heartbeat and one.heartbeat.waits else "unknown"


def _without_progress(one: RankObservation) -> RankObservation:
    """Return a copy in which the rank makes no progress, if it is unknown how long it has been there.

    The time is unknown for a rank that was seen only once.
    """
    if one.heartbeat is None or not math.isnan(one.heartbeat.still):
        return one
    return replace(one, heartbeat=replace(one.heartbeat, still=_STILL, alike=_STILL))


def _headline_of_request(request: LocateRanks, case: HangCase, hosts: Sequence[str]) -> str:
    culprits, waiting = case.diagnosis.culprits, case.diagnosis.waiting
    if request.reason == "time":
        here = " of this host" if len(set(hosts)) > 1 else ""
        still = culprits or (set(case.diagnosis.verdicts) == {"waiting"} and not here)
        found = f": {messages.hang_headline(case, hosts)}" if still else ""
        return f"the time limit of {request.seconds:g} s is over{found}; where each rank{here} is:"
    if not culprits:
        return f"HANG: {name_ranks(waiting)} wait for each other at the end, since {request.seconds:.0f} s"
    who = f"rank {culprits[0]} (host {hosts[culprits[0]]})" if len(culprits) == 1 else name_ranks(culprits)
    others = [rank for rank in range(len(case.seen)) if rank not in culprits]
    wait = f"{name_ranks(others)} {'waits' if len(others) == 1 else 'wait'}" if others else "the job waits"
    since, heartbeat = f"since {request.seconds:.0f} s", case.seen[culprits[0]].heartbeat
    at = (
        ""
        if heartbeat is None
        else f", in {heartbeat.what if heartbeat.phase == EXIT else messages.call_of(heartbeat)}"
    )
    at += f" at {heartbeat.where}" if heartbeat and heartbeat.where else ""
    if request.reason == "join":
        return f"HANG: {wait} for {who} to join (init_process_group, jax.distributed.initialize), {since}{at}"
    return f"HANG: {wait} for {who} to end, {since}{at}"
