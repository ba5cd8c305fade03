"""Write the messages of the hang watch, one report for all ranks. This module does no I/O."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from allranks.errors import name_ranks, rank_list
from allranks.hang.alarm import HangCase
from allranks.hang.diagnose import RankObservation, Verdict
from allranks.hang.heartbeat import Heartbeat
from allranks.hang.limits import Limits, describe_timeouts
from allranks.hang.stacks import group_equal_stacks
from allranks.hang.stragglers import Straggler
from allranks.report import format_table
from allranks.world.progress import PYTHON

MOST = 8  # culprits, groups of ranks, and stacks that are details one by one
_DOES: dict[Verdict, str] = {
    "working": "works, and the others wait for it",
    "stuck": "has not come to the call in which the others wait",
    "behind": "waits in an earlier call than the others",
    "ahead": "makes a call that the others do not make",
    "elsewhere": "waits in another call than the others",
    "stopped": "is stopped: its process gets no time (SIGSTOP, a debugger, Ctrl-Z)",
    "frozen": "lives, but none of its Python threads runs: a call in C holds the GIL, or the machine is overloaded",
    "silent": "does not answer: its machine, or the network to it, is down or overloaded",
    "dead": "has died",
    "raised": "has failed",
    "left": "has left while the others still need it",
}
_REMEDIES: dict[str, str] = {
    "data": "Check the data: a worker that is stuck or was killed, a slow file system, ranks with fewer batches.",
    "save": "Check the storage: is it full, slow or unreachable?",
    "restore": "Check the storage: is it slow or unreachable?",
    "load": "Check the storage: is it slow or unreachable?",
    "compile": "It compiles. If that is normal, raise --hang-first-step; else read its stack.",
    "collective": "Did all ranks make the same calls in one order? allranks run --guard, or allranks.lockstep, "
    "reports a difference before they hang.",
    "in lockstep": "Lockstep has found no difference so far. Compare the lines: is one of the ranks only slower?",
    "paired": "Count the sends and receives of each pair: every recv needs one send of its peer, in one order.",
    "grouped": "Use the groups in one order on all of their ranks.",
    "ahead": "Does only this rank evaluate, log or save, with a collective? All ranks must make it, or none: evaluate "
    "with model.module, without the wrapper.",
    "exchange": "Did all ranks make the same calls in one order?",
    "stopped": "Continue it (kill -CONT), or end it.",
    "frozen": "Read its stack: a C extension must release the GIL where it waits.",
    "silent": "Check its machine: is it up, does it swap, does the network reach it?",
    "dead": "Find out how it ended: its last lines of output, the kernel's log (out of memory).",
    "raised": "Read its traceback.",
    "left": "Did it run out of data, or stop early? All ranks must take the same number of steps.",
    "python": "Check its line: a lock, a file, a socket, a child process, or a loop that does not end.",
}


def hang_headline(case: HangCase, hosts: Sequence[str]) -> str:
    """Return one line that names the rank for which the others wait, and where that rank is."""
    culprits, waiting = case.diagnosis.culprits, case.diagnosis.waiting
    if not culprits:
        heartbeat = next(seen.heartbeat for seen in case.seen if seen.heartbeat is not None)
        return f"all ranks wait in {call_of(heartbeat)}{_duration_text(heartbeat.still)}, and no rank is missing"
    who = _rank_names(culprits, hosts)
    still = max(
        (seen.heartbeat.seconds_in_place for seen in case.seen if seen.heartbeat and seen.rank in waiting), default=0.0
    )
    if not waiting and all(
        heartbeat and heartbeat.waits for heartbeat in (case.seen[rank].heartbeat for rank in culprits)
    ):
        return _headline_of_different_calls(case, culprits)
    if not waiting:
        return f"{who} {'makes' if len(culprits) == 1 else 'make'} no progress{_where_rank_is(case, culprits[0])}"
    waits = "waits" if len(waiting) == 1 else "wait"
    return f"{name_ranks(waiting)} {waits} for {who}{_duration_text(still)}{_where_rank_is(case, culprits[0])}"


def hang_report(case: HangCase, hosts: Sequence[str], limits: Limits) -> str:
    """Return the complete report as text of several lines, without a newline at the end."""
    lines = [f"HANG: {hang_headline(case, hosts)}"]
    verdicts, now = case.diagnosis.verdicts, case.when
    for rank in case.diagnosis.culprits[:MOST]:
        lines += [f"  {line}" for line in describe_culprit(case.seen[rank], verdicts[rank], hosts[rank], now)]
    if case.rule:
        lines.append(f"  {case.rule}")
    if (heartbeat := first_waiting(case)) is not None:
        lines += [f"  limit: {text}" for text in describe_timeouts(heartbeat, limits)]
    notes = {note: rank for rank, snapshot in sorted(case.snapshots.items(), reverse=True) for note in snapshot.notes}
    lines += [f"  note: rank {rank}: {note}" for note, rank in notes.items()]
    return "\n".join([*lines, *table_and_stacks(case)])


def first_waiting(case: HangCase) -> Heartbeat | None:
    """Return the heartbeat of a waiting rank, if possible not of a rank that caused the hang; None if none waits."""
    waits = [seen.heartbeat for seen in case.seen if seen.heartbeat is not None and seen.heartbeat.waits]
    others = [heartbeat for heartbeat in waits if heartbeat.rank in case.diagnosis.waiting]
    return next(iter(others or waits), None)


def table_and_stacks(case: HangCase, *, hidden: Collection[int] = ()) -> list[str]:
    """Return the lines of a table of the ranks' states (equal ranks in one row), and then the lines of the stacks.

    The ``hidden`` ranks have no row.
    """
    rows = format_table(("ranks", "verdict", "in", "at", "for", "step"), _group_rows(case, hidden), indent="  ")
    return ["", *rows.splitlines(), "", *stack_lines(case)]


def remedy(seen: RankObservation, verdict: Verdict) -> str:
    """Return the advice on what to do about a rank that caused the hang."""
    heartbeat = seen.heartbeat
    if verdict in _REMEDIES or heartbeat is None:
        return _REMEDIES[verdict if verdict in _REMEDIES else "silent"]
    if heartbeat.phase != "collective":
        return _REMEDIES[heartbeat.phase]
    kinds = {
        "paired": heartbeat.peer >= 0,
        "grouped": bool(heartbeat.group),
        "in lockstep": heartbeat.lockstep,
        "collective": True,
    }
    return _REMEDIES[next(kind for kind, is_so in kinds.items() if is_so)]


def describe_culprit(seen: RankObservation, verdict: Verdict, host: str, now: float) -> Iterator[str]:
    """Yield lines that describe a rank that caused the hang, and what to do about it; ``now`` is in Unix seconds."""
    ended = f" ({seen.ended})" if seen.ended else ""
    yield f"rank {seen.rank} (host {host}) {_DOES.get(verdict, verdict)}{ended}"
    if (heartbeat := seen.heartbeat) is not None:
        old = "" if seen.fresh or seen.is_written else f"{now - heartbeat.when:.0f} s ago: "
        where = heartbeat.where or "(no Python line)"
        yield f"  {old}{call_of(heartbeat)} at {where}{_system_call_text(heartbeat)}, for {heartbeat.since:.0f} s"
        details = [f"step {heartbeat.step}"] if heartbeat.step is not None else []
        details += [f"before: {heartbeat.before}"] if heartbeat.before else []
        details += [f"its process uses {heartbeat.cores:.1f} cores"] if seen.fresh else []
        details += [f"under `{seen.branch}`"] if seen.branch else []
        if details:
            yield f"  {'; '.join(details)}"
    yield f"  what to do: {remedy(seen, verdict)}"


def _group_rows(case: HangCase, hidden: Collection[int]) -> Iterator[tuple[object, ...]]:
    """Yield a row of the table for each group of ranks in an equal state, the smallest group first."""
    groups: dict[tuple[object, ...], list[RankObservation]] = {}
    for seen, verdict in zip(case.seen, case.diagnosis.verdicts, strict=True):
        if seen.rank in hidden:
            continue
        heartbeat = seen.heartbeat
        key = (
            (verdict, call_of(heartbeat), heartbeat.where, heartbeat.step) if heartbeat else (verdict, None, None, None)
        )
        groups.setdefault(key, []).append(seen)
    ordered = sorted(groups.items(), key=lambda group: (len(group[1]), group[1][0].rank))
    for (judged, call, where, step), ones in ordered[:MOST]:
        longest = max((one.heartbeat.since for one in ones if one.heartbeat), default=math.nan)
        seconds = None if math.isnan(longest) else f"{longest:.0f} s"
        yield rank_list(one.rank for one in ones), judged, call, where, seconds, step
    if len(ordered) > MOST:
        yield (f"and {len(ordered) - MOST} more groups", "", "", "", "", "")


def stack_lines(case: HangCase, *, every_thread: bool = False) -> Iterator[str]:
    """Yield the lines of the stacks: of the training threads, equal stacks once, and then of other threads.

    With ``every_thread`` the other threads are those of all ranks, otherwise those of the ranks that caused the hang.
    """
    groups = group_equal_stacks({rank: snapshot.stack for rank, snapshot in case.snapshots.items()})
    most = len(groups) if every_thread else MOST
    for stack, ranks in groups[:most]:
        yield f"  stack of {name_ranks(ranks)}:"
        yield from (f"    {line}" for line in stack.splitlines())
    for rank in sorted(case.snapshots) if every_thread else case.diagnosis.culprits[:MOST]:
        for name, stack in case.snapshots[rank].threads.items() if rank in case.snapshots else ():
            yield f"  rank {rank}, thread {name}:"
            yield from (f"    {line}" for line in stack.splitlines())
    if len(groups) > most:
        yield f"  ({len(groups) - most} more stacks: allranks doctor --stacks)"


def _headline_of_different_calls(case: HangCase, ranks: Sequence[int]) -> str:
    """Return the headline for the case that every rank waits, but the ranks wait in different calls."""
    heartbeats = [heartbeat for rank in ranks if (heartbeat := case.seen[rank].heartbeat)]
    still = _duration_text(max(heartbeat.still for heartbeat in heartbeats))
    if all(heartbeat.peer >= 0 for heartbeat in heartbeats):
        missing = "sends" if heartbeats[0].is_receiving else "receives"
        calls = "; ".join(
            f"rank {heartbeat.rank} is in {heartbeat.what} at {heartbeat.where}" for heartbeat in heartbeats[:MOST]
        )
        return f"no rank {missing}{still}: {calls}"
    by_call: dict[str, list[int]] = {}
    for heartbeat in heartbeats:
        by_call.setdefault(f"{call_of(heartbeat)} at {heartbeat.where}", []).append(heartbeat.rank)
    calls = "; ".join(f"{name_ranks(some)} in {call}" for call, some in [*by_call.items()][:MOST])
    kind = "groups" if len({heartbeat.group for heartbeat in heartbeats}) > 1 else "calls"
    return f"the ranks are in different {kind}{still}: {calls}"


def _duration_text(seconds: float) -> str:
    return "" if math.isnan(seconds) else f", since {seconds:.0f} s"


def _rank_names(ranks: Sequence[int], hosts: Sequence[str]) -> str:
    return f"rank {ranks[0]} (host {hosts[ranks[0]]})" if len(ranks) == 1 else name_ranks(ranks)


def _where_rank_is(case: HangCase, rank: int) -> str:
    heartbeat, verdict = case.seen[rank].heartbeat, case.diagnosis.verdicts[rank]
    if heartbeat is None or not heartbeat.where:
        return f": {verdict}"
    if case.seen[rank].is_written:
        return f": {verdict} at {heartbeat.where}"
    if not case.seen[rank].fresh:
        return f": {verdict}, last seen at {heartbeat.where}"
    call = f"{call_of(heartbeat)} " if heartbeat.phase != PYTHON or heartbeat.what else ""
    return f": {call}at {heartbeat.where}{_system_call_text(heartbeat)}"


def call_of(heartbeat: Heartbeat) -> str:
    """Return the call that a rank is in, e.g. ``collective train_step``, ``Python``, ``Python (validation)``."""
    if heartbeat.phase == PYTHON:
        return f"Python ({heartbeat.what})" if heartbeat.what else "Python"
    return f"{heartbeat.phase} {heartbeat.what}".strip()


def _system_call_text(heartbeat: Heartbeat) -> str:
    return f", in {heartbeat.kernel}" if heartbeat.kernel and not heartbeat.kernel.startswith("futex") else ""


def mute_store(heartbeat: Heartbeat, hosts: Sequence[str], *, state: str, seconds: float) -> str:
    """Return the report of a rank that can query no other rank: the store that rank 0 serves does not answer."""
    stopped = "; its process is stopped (SIGSTOP, a debugger, Ctrl-Z)" if state in ("T", "t") else ""
    return (
        f"HANG: rank 0 (host {hosts[0]}), which serves the store of all ranks, has not answered for {seconds:.0f} s"
        f"{stopped}\n"
        f"  rank {heartbeat.rank} waits in {call_of(heartbeat)} at {heartbeat.where}, for {heartbeat.still:.0f} s\n"
        f"  what to do: {_REMEDIES['stopped' if stopped else 'silent']}"
    )


def describe_straggler(one: Straggler, heartbeat: Heartbeat, host: str) -> str:
    """Return one line about a slow rank: how long a step takes there, and how much time all ranks lose."""
    at = f", at step {heartbeat.step}" if heartbeat.step is not None else ""
    return (
        f"SLOW: rank {one.rank} (host {host}) is busy {heartbeat.pace:.3g} s a step, {one.ratio:.2f} times as long as "
        f"the median rank{at}: all ranks lose {one.seconds:.2g} s a step by it"
    )
