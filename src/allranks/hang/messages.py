"""The messages of the hang watch: one report for all ranks. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from allranks.errors import name_ranks, rank_list
from allranks.hang.alarm import Case
from allranks.hang.diagnose import Seen, Verdict
from allranks.hang.heartbeat import Heartbeat
from allranks.hang.limits import Limits, governing
from allranks.hang.stacks import alike
from allranks.hang.stragglers import Straggler
from allranks.report import table
from allranks.world.progress import PYTHON

MOST = 8  # culprits, groups of ranks, and stacks that are told one by one
_DOES: dict[Verdict, str] = {
    "working": "works, and makes the others wait",
    "stuck": "has not come to the call in which the others wait",
    "behind": "waits in an earlier call than the others",
    "ahead": "makes a call that the others do not make",
    "elsewhere": "waits in another call than the others",
    "stopped": "is stopped: its process gets no time (SIGSTOP, a debugger, Ctrl-Z)",
    "frozen": "lives, but no Python thread of it runs: a call in C holds Python's lock, or the machine is overloaded",
    "silent": "gives no sign: its machine, or the network to it, is gone or overloaded",
    "dead": "is dead",
    "raised": "has failed",
    "left": "has left while the others still need it",
}
_REMEDIES: dict[str, str] = {
    "data": "Look at the data: a worker that is stuck or was killed, a slow file system, ranks with fewer batches.",
    "save": "Look at the storage: is it full, slow or gone?",
    "restore": "Look at the storage: is it slow or gone?",
    "load": "Look at the storage: is it slow or gone?",
    "compile": "It compiles. If that is normal, raise hang_after; else look at its stack.",
    "collective": "Did all ranks run the same calls in one order? allranks run --guard, or allranks.lockstep, "
    "says so before they hang.",
    "in lockstep": "Lockstep has found no difference so far. Look at the lines: is one of the ranks only slower?",
    "paired": "Count the sends and receives of each pair: every recv needs one send of its peer, in one order.",
    "grouped": "Use the groups in one order on all of their ranks.",
    "ahead": "Does it alone evaluate, log or save, by a call of all ranks? All must make it, or none: evaluate with "
    "model.module, without the wrapper.",
    "meeting": "Did all ranks make the same calls in one order?",
    "stopped": "Continue it (kill -CONT), or end it.",
    "frozen": "Look at its stack: a C extension must release Python's lock where it waits.",
    "silent": "Look at its machine: is it up, is it swapping, does the network reach it?",
    "dead": "See how it ended: its last lines of output, the kernel's log (out of memory).",
    "raised": "See its traceback.",
    "left": "Did it run out of data, or stop early? All ranks must take the same number of steps.",
    "python": "Look at its line: a lock, a file, a socket, a child process, or a loop that does not end.",
}


def headline(case: Case, hosts: Sequence[str]) -> str:
    """Return one line: who everybody waits for, and where that is."""
    culprits, waiting = case.diagnosis.culprits, case.diagnosis.waiting
    if not culprits:
        beat = next(seen.beat for seen in case.seen if seen.beat is not None)
        return f"all ranks stand in {call_of(beat)}{_since(beat.still)}, and nobody is missing"
    who = _named(culprits, hosts)
    still = max((seen.beat.stood for seen in case.seen if seen.beat and seen.rank in waiting), default=0.0)
    if not waiting and all(beat and beat.waits for beat in (case.seen[rank].beat for rank in culprits)):
        return _differ(case, culprits)
    if not waiting:
        return f"{who} {'stands' if len(culprits) == 1 else 'stand'} still{_where(case, culprits[0])}"
    waits = "waits" if len(waiting) == 1 else "wait"
    return f"{name_ranks(waiting)} {waits} for {who}{_since(still)}{_where(case, culprits[0])}"


def report(case: Case, hosts: Sequence[str], limits: Limits) -> str:
    """Return the whole report; lines without a newline at the end."""
    lines = [f"HANG: {headline(case, hosts)}"]
    verdicts, now = case.diagnosis.verdicts, case.when
    for rank in case.diagnosis.culprits[:MOST]:
        lines += [f"  {line}" for line in culprit(case.seen[rank], verdicts[rank], hosts[rank], now)]
    if (beat := first_waiting(case)) is not None:
        lines += [f"  limit: {text}" for text in governing(beat, limits)]
    notes = {note: rank for rank, snapshot in sorted(case.snapshots.items(), reverse=True) for note in snapshot.notes}
    lines += [f"  note: rank {rank}: {note}" for note, rank in notes.items()]
    return "\n".join([*lines, *table_and_stacks(case)])


def first_waiting(case: Case) -> Heartbeat | None:
    """Return the beat of a rank that waits for others; of one that is waited for, too, where there is no other."""
    waits = [seen.beat for seen in case.seen if seen.beat is not None and seen.beat.waits]
    others = [beat for beat in waits if beat.rank in case.diagnosis.waiting]
    return next(iter(others or waits), None)


def table_and_stacks(case: Case) -> list[str]:
    """Return what each rank is in, ranks that are alike in one row, and the stacks."""
    rows = table(("ranks", "verdict", "in", "at", "for", "step"), _groups(case), indent="  ")
    return ["", *rows.splitlines(), "", *stack_lines(case)]


def remedy(seen: Seen, verdict: Verdict) -> str:
    """Return what to do about a culprit."""
    beat = seen.beat
    if verdict in _REMEDIES or beat is None:
        return _REMEDIES[verdict if verdict in _REMEDIES else "silent"]
    if beat.phase != "collective":
        return _REMEDIES[beat.phase]
    kinds = {"paired": beat.peer >= 0, "grouped": bool(beat.group), "in lockstep": beat.lockstep, "collective": True}
    return _REMEDIES[next(kind for kind, is_so in kinds.items() if is_so)]


def culprit(seen: Seen, verdict: Verdict, host: str, now: float) -> Iterator[str]:
    """Yield what is known of a rank that others wait for, and what to do about it; ``now`` is in Unix seconds."""
    ended = f" ({seen.ended})" if seen.ended else ""
    yield f"rank {seen.rank} (host {host}) {_DOES.get(verdict, verdict)}{ended}"
    if (beat := seen.beat) is not None:
        old = "" if seen.fresh or seen.is_written else f"{now - beat.when:.0f} s ago: "
        yield f"  {old}{call_of(beat)} at {beat.where or '(no Python line)'}{_kernel(beat)}, for {beat.since:.0f} s"
        told = [f"step {beat.step}"] if beat.step is not None else []
        told += [f"before: {beat.before}"] if beat.before else []
        told += [f"its process uses {beat.cores:.1f} cores"] if seen.fresh else []
        told += [f"below `{seen.branch}`"] if seen.branch else []
        if told:
            yield f"  {'; '.join(told)}"
    yield f"  what to do: {remedy(seen, verdict)}"


def _groups(case: Case) -> Iterator[tuple[object, ...]]:
    """Yield a row for the ranks that are alike, the fewest first."""
    groups: dict[tuple[object, ...], list[Seen]] = {}
    for seen, verdict in zip(case.seen, case.diagnosis.verdicts, strict=True):
        beat = seen.beat
        key = (verdict, call_of(beat), beat.where, beat.step) if beat else (verdict, None, None, None)
        groups.setdefault(key, []).append(seen)
    ordered = sorted(groups.items(), key=lambda group: (len(group[1]), group[1][0].rank))
    for (judged, call, where, step), ones in ordered[:MOST]:
        longest = max((one.beat.since for one in ones if one.beat), default=math.nan)
        seconds = None if math.isnan(longest) else f"{longest:.0f} s"
        yield rank_list(one.rank for one in ones), judged, call, where, seconds, step
    if len(ordered) > MOST:
        yield (f"and {len(ordered) - MOST} more groups", "", "", "", "", "")


def stack_lines(case: Case, *, every_thread: bool = False) -> Iterator[str]:
    """Yield the stacks of the training threads, equal ones once, and of other threads: of all ranks or of culprits."""
    groups = alike({rank: snapshot.stack for rank, snapshot in case.snapshots.items()})
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


def _differ(case: Case, ranks: Sequence[int]) -> str:
    """Return the headline where every rank waits, and each for something else."""
    beats = [beat for rank in ranks if (beat := case.seen[rank].beat)]
    still = _since(max(beat.still for beat in beats))
    if all(beat.peer >= 0 for beat in beats):
        nobody = "sends" if beats[0].is_receiving else "receives"
        calls = "; ".join(f"rank {beat.rank} is in {beat.what} at {beat.where}" for beat in beats[:MOST])
        return f"nobody {nobody}{still}: {calls}"
    by_call: dict[str, list[int]] = {}
    for beat in beats:
        by_call.setdefault(f"{call_of(beat)} at {beat.where}", []).append(beat.rank)
    calls = "; ".join(f"{name_ranks(some)} in {call}" for call, some in [*by_call.items()][:MOST])
    kind = "groups" if len({beat.group for beat in beats}) > 1 else "calls"
    return f"the ranks are in different {kind}{still}: {calls}"


def _since(seconds: float) -> str:
    return "" if math.isnan(seconds) else f", since {seconds:.0f} s"


def _named(ranks: Sequence[int], hosts: Sequence[str]) -> str:
    return f"rank {ranks[0]} (host {hosts[ranks[0]]})" if len(ranks) == 1 else name_ranks(ranks)


def _where(case: Case, rank: int) -> str:
    beat, verdict = case.seen[rank].beat, case.diagnosis.verdicts[rank]
    if beat is None or not beat.where:
        return f": {verdict}"
    if case.seen[rank].is_written:
        return f": {verdict} at {beat.where}"
    if not case.seen[rank].fresh:
        return f": {verdict}, last seen at {beat.where}"
    call = f"{call_of(beat)} " if beat.phase != PYTHON or beat.what else ""
    return f": {call}at {beat.where}{_kernel(beat)}"


def call_of(beat: Heartbeat) -> str:
    """Return what a rank is in: ``collective train_step``, ``Python``, ``Python (validation)``."""
    if beat.phase == PYTHON:
        return f"Python ({beat.what})" if beat.what else "Python"
    return f"{beat.phase} {beat.what}".strip()


def _kernel(beat: Heartbeat) -> str:
    return f", in {beat.kernel}" if beat.kernel and not beat.kernel.startswith("futex") else ""


def mute_store(beat: Heartbeat, hosts: Sequence[str], *, state: str, seconds: float) -> str:
    """Return the report of a rank that can ask nobody: the store does not answer, and rank 0 serves it."""
    stopped = "; its process is stopped (SIGSTOP, a debugger, Ctrl-Z)" if state in ("T", "t") else ""
    return (
        f"HANG: rank 0 (host {hosts[0]}), which serves the store of all ranks, has not answered for {seconds:.0f} s"
        f"{stopped}\n  this rank, {beat.rank}, stands in {call_of(beat)} at {beat.where}, for {beat.still:.0f} s\n"
        f"  what to do: {_REMEDIES['stopped' if stopped else 'silent']}"
    )


def straggler(one: Straggler, beat: Heartbeat, host: str) -> str:
    """Return one line about a slow rank."""
    at = f", at step {beat.step}" if beat.step is not None else ""
    return (
        f"SLOW: rank {one.rank} (host {host}) is busy {beat.pace:.3g} s a step, {one.ratio:.2f} times as long as the "
        f"median rank{at}: all ranks lose {one.seconds:.2g} s a step by it"
    )
