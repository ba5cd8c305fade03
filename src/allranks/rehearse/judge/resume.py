"""Check that a killed run continues where it was, by comparing it with a run without a kill.

The weights before a resumed run's first step show at which step it continues: the weights of the run without a kill are
known for each step. From this step on, both runs must get the same samples, and compute the same from them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

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

# The kinds of events that have samples, the best one first.
_SAMPLES = ("input", "global", "batch")
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
    weights = _weights(baseline)
    if not weights:
        return "no weights were seen: no optimizer of torch, and no replicated argument of a JAX program"
    if len(runs) < 2:
        return ""
    known = {digest for those in weights.values() for digest in those}
    for run in runs[1:]:
        if first := _weights(run).get(0):
            return "" if known & set(first) else "the weights after the restart are of no step that was recorded"
    return "no step was made after the restart"


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
        equal = {step: [a == b for a, b in zip(those, started[0], strict=False)] for step, those in weights.items()}
        best = max(equal, key=lambda step: (sum(equal[step]), step))
        same = sum(equal[best])
        if not same:
            return None  # nothing that was saved is known: see unseen
        rows = first.data["rows"] if first else []
        names = [row[0] for row, is_equal in zip(rows, equal[best], strict=False) if row[0] and not is_equal]
        some = f" ({', '.join(names[:2])}{', ...' * (len(names) > 2)})" if names else ""
        text = (
            f"after the {which} interruption {len(started[0]) - same} of {len(started[0])} arrays{some} are not those "
            f"of the uninterrupted run after step {best}, and {same} are"
        )
        return finding(STATE, text, read, [*evidence, ("the first step after it", first)])
    if is_of_rank_0(baseline, run, at):
        text = f"after the {which} interruption all ranks have one random state, and each had its own at step {at + 1}"
        return finding(STATE, text, read, [*evidence, ("the first step after it", first)])
    for judge_steps in (_data, _state, _saves):
        if one := judge_steps(baseline, run, at, which, evidence):
            return one
    return None


def _data(baseline: Trace, run: Trace, at: int, which: str, evidence: list[tuple[str, Event]]) -> Finding | None:
    """Return a finding at the first step whose samples are not those of the run without an interruption."""
    before, after = _samples(baseline), _samples(run)
    steps = min(run.steps, baseline.steps - at)
    for step in range(max(steps, 1)):
        if not after.get(step) or at + step not in before or before[at + step] == after[step]:
            continue
        place = _place_of_samples(run, step)
        text = f"after the {which} interruption, step {at + step + 1} gets other samples than without it"
        as_step = next((number for number, those in sorted(before.items()) if those == after[step]), None)
        if as_step is not None and as_step < at + step:
            return finding(DATA, f"{text}: again those of step {as_step + 1}", place, evidence)
        if as_step is not None:
            lost = as_step - at - step
            return finding(DATA, f"{text}: those of step {as_step + 1}: {lost} steps of data are lost", place, evidence)
        seen = {sample for number, those in before.items() if number < at + step for sample in those}
        repeated = [sample for sample in after[step] if sample in seen]
        if not repeated and set(after[step]) & {s for n, those in before.items() if n >= at + step for s in those}:
            text = f"after the {which} interruption the samples come in another order than without it"
        else:
            text += f": {len(repeated)} of {len(after[step])} were read before it"
        return finding(DATA, text, place, evidence)
    return None


def _state(baseline: Trace, run: Trace, at: int, which: str, evidence: list[tuple[str, Event]]) -> Finding | None:
    """Return a finding at the first step that does other than it did without an interruption."""
    weights, started = _weights(baseline), _weights(run)
    rates, new_rates = _rates(baseline), _rates(run)
    gradients, new_gradients = _gradients(baseline), _gradients(run)
    for step in sorted(started):
        number = at + step
        if number in rates and step in new_rates and rates[number] != new_rates[step]:
            what = f"the learning rate is {new_rates[step]}, and was {rates[number]} without the interruption"
        elif number + 1 not in weights or step + 1 not in started or weights[number + 1] == started[step + 1]:
            continue
        elif gradients.get(number) == new_gradients.get(step):
            what = "gradients are the same and weights after the step are not: the optimizer's state is not restored"
        else:
            what = (
                "weights and samples are the same and gradients are not: random state (dropout) or buffers are not "
                "restored"
            )
        text = f"after the {which} interruption step {number + 1} does other than without it: {what}"
        events = (e for kind in ("weights", "replicas") for e in run.of(kind))
        place = next((e for e in events if e.rank == 0 and e.data["number"] == step), None)
        return finding(STATE, text, evidence[0][1], [*evidence, (f"step {step + 1} after it", place)])
    return None


def _saves(baseline: Trace, run: Trace, at: int, which: str, evidence: list[tuple[str, Event]]) -> Finding | None:
    """Return a finding for a checkpoint with other arrays than that of the same step without an interruption."""
    before = _contents(baseline, 0)
    for key, event in _contents(run, at).items():
        other = before.get(key)
        if other is None or event.data["content"].keys() != other.data["content"].keys():
            continue
        names = [name for name, one in event.data["content"].items() if one != other.data["content"][name]]
        if names:
            some = ", ".join(names[:2]) + ", ..." * (len(names) > 2)
            text = (
                f"after the {which} interruption the checkpoint of step {key[1]} has other values than without it in "
                f"{len(names)} of {len(event.data['content'])} arrays ({some})"
            )
            return finding(STATE, text, evidence[0][1], [*evidence, ("it is saved again", event)])
    return None


def _contents(trace: Trace, at: int) -> dict[tuple[object, ...], Event]:
    """Return the events of saves by rank, step, line, and number at this line in this step."""
    found: dict[tuple[object, ...], Event] = {}
    counts: Counter[tuple[object, ...]] = Counter()
    for event in trace.of("saved"):
        if event.data.get("content") and event.step:
            key = (event.rank, at + event.step, event.where)
            found[*key, counts[key]] = event
            counts[key] += 1
    return found


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
    kind = next((kind for kind in _SAMPLES if any(e.rank == 0 for e in trace.of(kind))), "input")
    found: dict[int, list[str]] = defaultdict(list)
    trained = _loaders_of_steps(trace)
    for event in trace.of(kind):
        if event.rank == 0 and (kind != "batch" or not trained or event.data["loader"] in trained):
            found[event.step] += event.data["samples"]
    return found


def _place_of_samples(run: Trace, step: int) -> Event:
    """Return the event at which rank 0 got the samples of a step: the batch of a loader, if there is one."""
    trained = _loaders_of_steps(run)
    events = [e for kind in _SAMPLES for e in run.of(kind) if e.rank == 0 and e.step == step]
    batches = (e for e in events if e.where is not None and e.data.get("loader") in trained)
    return next(batches, events[0])


def _loaders_of_steps(trace: Trace) -> set[int]:
    """Return the loaders of rank 0 that have a batch right before a step: not those of a validation."""
    events = [event for event in trace.of("batch", "step") if event.rank == 0]
    return {a.data["loader"] for a, b in pairwise(events) if (a.kind, b.kind) == ("batch", "step")}


def _first(trace: Trace, kind: str) -> Event | None:
    return next((event for event in trace.of(kind) if event.rank == 0), None)


def _checkpoint_read(before: Trace, run: Trace) -> Event | None:
    """Return the event at which a run reads a file that the run before it has written, or None.

    A file that the run itself has written by then says nothing: a program copies its best checkpoint.
    """
    written = {path for e in before.of("file") if e.step and _changes(e) for path in e.data["paths"]}
    rewritten: set[str] = set()
    for event in run.of("file"):
        path = event.data["paths"][0]
        if _changes(event):
            rewritten.update(event.data["paths"])
        elif (
            event.data["operation"] == "read"
            and event.where
            and event.data["existed"]
            and is_checkpoint(path)
            and path in written - rewritten
        ):
            return event
    return None


def _changes(event: Event) -> bool:
    return event.data["operation"] not in ("read", "exists", "list")
