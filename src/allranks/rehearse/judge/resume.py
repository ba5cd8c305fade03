"""Check that a killed run continues where it was, by comparing it with a run without a kill.

The weights before a resumed run's first step show at which step it continues: the weights of the run without a kill are
known for each step. From this step on, both runs must get the same samples, and compute the same from them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from allranks.findings import Finding
from allranks.rehearse.checkpoint_names import is_checkpoint
from allranks.rehearse.judge.base import Kind, finding
from allranks.rehearse.judge.randomness import is_of_rank_0
from allranks.rehearse.trace import Event, Trace

DATA = Kind(
    "AR311",
    "resume-restarts-data",
    "error",
    "After each interruption samples are read twice, or never: the model sees the first part of the data most.",
    "Save the position of the data with the step, and go on from it (a stateful loader, or skip what was read).",
)
BEGINS_ANEW = Kind(
    "AR005",
    "resume-begins-anew",
    "error",
    "Each interruption throws away all steps before it, though there is a checkpoint.",
    "Load the weights that were read from the checkpoint into the model that is trained.",
)
STATE = Kind(
    "AR006",
    "resume-loses-state",
    "error",
    "Training after an interruption is another one than without: the loss jumps, or the schedule starts again.",
    "Save and load all of it: weights, optimizer, scheduler, scaler, and the random state of each rank.",
)

Samples = Mapping[int, Sequence[str]]


def judge(baseline: Trace, runs: Sequence[Trace]) -> Iterator[Finding]:
    """Yield a finding for what is wrong after a kill.

    ``runs`` has the run that was killed first, then the following runs.
    """
    weights = _weights(baseline)
    for number, run in enumerate(runs[1:], 1):
        read = _checkpoint_read(runs[number - 1], run)
        started = _weights(run)
        if read is None or 0 not in started or 0 not in weights:
            continue
        found = _of_one(baseline, run, weights, started, read, number)
        if found is not None:
            yield found
            return


def unseen(baseline: Trace, runs: Sequence[Trace]) -> str:
    """Return why resuming could not be judged, or "" if it could."""
    if not any(event.kind == "killed" for event in runs[0].events):
        return "no checkpoint appeared before the last step, so nothing was resumed"
    if len(runs) > 1 and _checkpoint_read(runs[0], runs[1]) is None:
        return "the second start reads no checkpoint: --resume-args adds what it needs to the command"
    if not _weights(baseline):
        return "no weights were seen: no optimizer of torch, and no replicated argument of a JAX program"
    return ""


def _of_one(
    baseline: Trace,
    run: Trace,
    weights: Mapping[int, Sequence[str]],
    started: Mapping[int, Sequence[str]],
    read: Event,
    number: int,
) -> Finding | None:
    which = "first" if number == 1 else "second"
    evidence = [(f"rank {read.rank} reads the checkpoint {read.data['paths'][-1].rpartition('/')[2]}", read)]
    at = next((step for step in sorted(weights, reverse=True) if weights[step] == started[0]), None)
    first = _first(run, "weights") or _first(run, "replicas")
    if at == 0:
        text = f"after the {which} interruption training begins anew: its first weights are those of step 1"
        return finding(BEGINS_ANEW, text, read, [*evidence, ("the first step after it", first)])
    if at is None:
        best = max(weights, key=lambda step: sum(a == b for a, b in zip(weights[step], started[0], strict=False)))
        same = sum(a == b for a, b in zip(weights[best], started[0], strict=False))
        if not same:
            return None  # nothing that was saved is known: another schedule of saves, or weights of another kind
        text = (
            f"after the {which} interruption {len(started[0]) - same} of {len(started[0])} parameters are not those of "
            f"the uninterrupted run at step {best}, and {same} are"
        )
        return finding(STATE, text, read, [*evidence, ("the first step after it", first)])
    if is_of_rank_0(baseline, run, at):
        text = f"after the {which} interruption all ranks have one random state, and each had its own at step {at + 1}"
        return finding(STATE, text, read, [*evidence, ("the first step after it", first)])
    return _data(baseline, run, at, which, evidence) or _state(baseline, run, weights, started, at, which, evidence)


def _data(baseline: Trace, run: Trace, at: int, which: str, evidence: list[tuple[str, Event]]) -> Finding | None:
    before, after = _samples(baseline), _samples(run)
    if at not in before or 0 not in after or not after[0] or before[at] == after[0]:
        return None
    place = _first(run, "batch") or _first(run, "input") or _first(run, "global")
    as_step = next((step for step, those in sorted(before.items()) if those == after[0]), None)
    if as_step is not None:
        what = (
            f"again those of step {as_step + 1}"
            if as_step < at
            else f"those of step {as_step + 1}: {as_step - at} steps of data are lost"
        )
        text = f"after the {which} interruption, step {at + 1} gets other samples than without it: {what}"
        return finding(DATA, text, place, evidence)
    seen = {sample for step, those in before.items() if step < at for sample in those}
    repeated = [sample for sample in after[0] if sample in seen]
    if not repeated and set(after[0]) & {s for step, those in before.items() if step >= at for s in those}:
        text = f"after the {which} interruption the samples come in another order than without it"
    else:
        text = (
            f"after the {which} interruption, step {at + 1} gets other samples than without it: "
            f"{len(repeated)} of {len(after[0])} were read before it"
        )
    return finding(DATA, text, place, evidence)


def _state(
    baseline: Trace,
    run: Trace,
    weights: Mapping[int, Sequence[str]],
    started: Mapping[int, Sequence[str]],
    at: int,
    which: str,
    evidence: list[tuple[str, Event]],
) -> Finding | None:
    if at + 1 not in weights or 1 not in started or weights[at + 1] == started[1]:
        return None
    rates_before, rates_after = _rates(baseline).get(at), _rates(run).get(0)
    gradients_before, gradients_after = _gradients(baseline).get(at), _gradients(run).get(0)
    if rates_before != rates_after:
        what = f"the learning rate is {rates_after}, and was {rates_before} at step {at + 1} without the interruption"
    elif gradients_before == gradients_after:
        what = "gradients are the same and weights after the step are not: the optimizer's state is not restored"
    else:
        what = (
            "weights and samples are the same and gradients are not: random state (dropout) or buffers are not restored"
        )
    text = f"after the {which} interruption step {at + 1} does other than without it: {what}"
    return finding(
        STATE,
        text,
        evidence[0][1],
        [*evidence, ("the first step after it", _first(run, "weights") or _first(run, "replicas"))],
    )


def _weights(trace: Trace) -> dict[int, tuple[str, ...]]:
    """Return, for each recorded step, the digests of rank 0's weights before that step.

    The weights are those of torch's optimizer, or JAX's replicated arguments.
    """
    events = _of_rank_0(trace, "weights") or _of_main_program(trace)
    return {e.data["number"]: tuple(row[4] for row in e.data["rows"]) for e in events}


def _of_main_program(trace: Trace) -> list[Event]:
    """Return the events of the program that rank 0 runs most often."""
    events = [e for e in trace.of("replicas") if e.rank == 0]
    programs = Counter(e.data["program"] for e in events)
    return [e for e in events if e.data["program"] == programs.most_common(1)[0][0]]


def _gradients(trace: Trace) -> dict[int, tuple[str, ...]]:
    return {e.data["number"]: tuple(row[5] for row in e.data["rows"]) for e in _of_rank_0(trace, "weights")}


def _rates(trace: Trace) -> dict[int, object]:
    return {e.data["number"]: e.data["rates"] for e in _of_rank_0(trace, "weights")}


def _of_rank_0(trace: Trace, kind: str) -> list[Event]:
    return [e for e in trace.of(kind) if e.rank == 0 and e.data.get("optimizer", 0) == 0]


def _samples(trace: Trace) -> Samples:
    """Return, for each step, the digests of the samples that rank 0 got."""
    kind = next((kind for kind in ("input", "global", "batch") if any(e.rank == 0 for e in trace.of(kind))), "input")
    found: dict[int, list[str]] = defaultdict(list)
    for event in trace.of(kind):
        if event.rank == 0:
            found[event.step] += event.data["samples"]
    return found


def _first(trace: Trace, kind: str) -> Event | None:
    return next((event for event in trace.of(kind) if event.rank == 0), None)


def _checkpoint_read(before: Trace, run: Trace) -> Event | None:
    """Return the event at which a run reads a file that the run before it has written, or None."""
    written = {
        path
        for e in before.of("file")
        if e.step and e.data["operation"] not in ("read", "exists", "list")
        for path in e.data["paths"]
    }
    return next(
        (
            e
            for e in run.of("file")
            if e.data["operation"] == "read"
            and e.where
            and e.data["existed"]
            and is_checkpoint(e.data["paths"][0])
            and e.data["paths"][0] in written
        ),
        None,
    )
