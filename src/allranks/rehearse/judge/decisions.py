"""Find decisions that each rank makes by a rank-local value: to leave a loop, to skip a step, to save.

Also where all ranks decided alike in this run: the values differ, so on other data the decisions do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from allranks.findings import Finding
from allranks.rehearse.judge.base import Case, Kind, finding, who
from allranks.rehearse.judge.replicas import shares_gradients
from allranks.rehearse.trace import Event, Trace

LEAVES = Kind(
    "AR209",
    "rank-local-loop-exit",
    "error",
    "The rank that leaves or skips is missed by the others in their next collective: the job hangs, or gradients of "
    "different steps are averaged.",
    "Reduce the value over the ranks first (all_reduce), or let rank 0 decide and broadcast the decision.",
)
COLLECTIVE = Kind(
    "AR203",
    "collective-under-process-local-condition",
    "error",
    "The ranks that make the step wait for those that do not: the job hangs, or other batches are averaged.",
    "Reduce the value over the ranks first (all_reduce), or let rank 0 decide and broadcast the decision.",
)
CHOICE = Kind(
    "AR310",
    "metric-not-reduced",
    "warning",
    "The choice is made by one rank's part of the data: another checkpoint or rate than that of all data.",
    "Reduce the value over the ranks first (all_reduce of the sum and the count), then decide.",
)
SKIPS = Kind(
    "AR209",
    "rank-local-loop-exit",
    "error",
    "The rank that caught the error goes on with its next step while the others finish this one: the job hangs, or "
    "gradients of different steps are averaged.",
    "Let the error end the job (every rank), or agree on it: all ranks exchange whether any failed, then all skip.",
)
SWALLOWED = Kind(
    "AR008",
    "failure-swallowed",
    "error",
    "The scheduler takes the job for done: nobody is told, nothing is started again, and the checkpoint is older than "
    "it seems.",
    "Log the error and raise it again (or exit with another code than 0).",
)


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for each line that decides by a rank's own value, and for each error that one rank swallows."""
    if case.trace.ranks == 1:
        return
    is_replica = shares_gradients(case)
    for by_rank in _by_line(case.trace, "branch"):
        if len(by_rank) == case.trace.ranks and (pair := _differing(by_rank)):
            yield from _decision(case.trace, by_rank, pair, is_replica=is_replica)
    yield from _rates(case.trace)
    yield from _caught(case.trace)


def _by_line(trace: Trace, kind: str) -> Iterator[dict[int, list[Event]]]:
    lines: dict[object, dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in trace.of(kind):
        lines[event.where, event.data.get("at")][event.rank].append(event)
    yield from lines.values()


def _differing(by_rank: Mapping[int, Sequence[Event]]) -> list[tuple[Event, float]]:
    """Return, for each rank, an event and the value in it that differs between ranks; [] if none does."""
    for events in zip(*(by_rank[rank] for rank in sorted(by_rank)), strict=False):
        for values in zip(*(event.data["values"] for event in events), strict=False):
            if len(set(map(repr, values))) > 1:
                return list(zip(events, values, strict=True))
    return []


def _decision(
    trace: Trace,
    by_rank: Mapping[int, Sequence[Event]],
    pair: Sequence[tuple[Event, float]],
    *,
    is_replica: bool,
) -> Iterator[Finding]:
    event = pair[0][0]
    controls = event.data["controls"]
    trains = all(_is_joint(trace, rank, event, is_replica=is_replica) for rank in by_rank)
    if "leave" in controls and trains:
        kind, what = LEAVES, "leaves or skips"
    elif "step" in controls and (is_replica or trains):
        kind, what = COLLECTIVE, "makes a step"
    elif "save" in controls or "rate" in controls:
        kind, what = CHOICE, "saves" if "save" in controls else "changes the learning rate"
    else:
        return
    shown = _shown(pair)
    text = f"each rank {what} here by a rank-local value ({shown})"
    evidence = [(f"rank {one.rank}, step {one.step}: decides by {value:.6g}", one) for one, value in pair[:2]]
    if one := finding(kind, text, event, evidence):
        yield one


def _shown(pair: Sequence[tuple[Event, float]]) -> str:
    """Return the values of the ranks as text, with as many digits as it takes to tell them apart."""
    digits = 6 if len({f"{value:.6g}" for _, value in pair[:4]}) > 1 else 15
    return ", ".join(f"rank {one.rank}: {value:.{digits}g}" for one, value in pair[:4])


def _is_joint(trace: Trace, rank: int, event: Event, *, is_replica: bool) -> bool:
    """Return whether the ranks work together in the lines ``within`` which an event is: in steps, or collectives."""
    within = event.data["within"]
    if not within or event.where is None:
        return False
    return any(
        frame.path == event.where.path and within[0] <= frame.line <= within[1]
        for one in trace.of("enter", "step")
        if one.rank == rank and (one.kind == "enter" or is_replica or "program" in one.data)
        for frame in one.place
    )


def _rates(trace: Trace) -> Iterator[Finding]:
    """Yield a finding for each line at which a scheduler gets another metric on each rank."""
    for by_rank in _by_line(trace, "plateau"):
        if len(by_rank) < trace.ranks or not (pair := _differing(by_rank)):
            continue
        shown = _shown(pair)
        text = f"each rank changes its learning rate by a rank-local value ({shown})"
        kind = Kind(CHOICE.code, CHOICE.name, "error", CHOICE.cluster, CHOICE.advice)
        if one := finding(kind, text, pair[0][0], [(f"rank {e.rank}: {value!r}", e) for e, value in pair[:2]]):
            yield one


def _caught(trace: Trace) -> Iterator[Finding]:
    """Yield a finding for each handler that hides an error, or with which some ranks skip a step."""
    for by_rank in _by_line(trace, "caught"):
        events = [event for those in by_rank.values() for event in those]
        first = _of_some_ranks(trace, events) or events[0]
        is_joint = any(_is_joint(trace, rank, first, is_replica=True) for rank in range(trace.ranks))
        if "ends" in first.data["controls"] or not is_joint:
            continue
        error, goes_on = first.data["error"], first.data["in_loop"]
        evidence = [(f"rank {event.rank}, step {event.step}: {event.data['error']}", event) for event in events[:3]]
        after = {e.kind for e in trace.of("enter", "step", "left") if e.rank == first.rank and e.time > first.time}
        if goes_on and _of_some_ranks(trace, events) and after - {"left"}:
            text = f"an error in a step of rank {first.rank} is caught, and the next step follows: {error}"
            one = finding(SKIPS, text, first, evidence)
        elif not goes_on and "broad" in first.data["controls"] and "left" in after:
            text = f"the error that ends the training of {who(events)} is caught, and the program goes on: {error}"
            one = finding(SWALLOWED, text, first, evidence)
        else:
            continue
        if one:
            yield one


def _of_some_ranks(trace: Trace, events: Sequence[Event]) -> Event | None:
    """Return the first exception that not all ranks catch at its step, or None."""
    ranks: dict[tuple[int, str], set[int]] = defaultdict(set)
    for event in events:
        ranks[event.step, event.data["error"]].add(event.rank)
    by_time = sorted(events, key=lambda event: event.time)
    return next((one for one in by_time if len(ranks[one.step, one.data["error"]]) < trace.ranks), None)
