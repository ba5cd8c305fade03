"""Find random numbers that are equal on all ranks although each rank needs its own.

The evidence is the state of torch's random generator at the steps. This module does no I/O.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from allranks.findings import Finding
from allranks.rehearse.judge.base import Case, Kind, finding
from allranks.rehearse.trace import Event, Trace

SAME_MASKS = Kind(
    "AR701",
    "same-prng-key-on-every-device",
    "warning",
    "All ranks drop the same elements: the noise of N ranks is that of one, and does not average out.",
    "After the model is made, seed each rank by its number: torch.manual_seed(seed + rank).",
)
_FEWEST = 3


SAME_NOISE = Kind(
    SAME_MASKS.code,
    SAME_MASKS.name,
    SAME_MASKS.severity,
    "All ranks draw the same numbers for different data: the noise of N ranks does not average out.",
    "Let each rank draw its own: fold_in(key, process_index() or axis_index(...)), or a seed that depends on the rank.",
)
SEEDS = Kind(
    "AR702",
    "rank-divergent-init",
    "warning",
    "Each rank, and each run, gets another seed: what must be equal on all ranks is not, and no run can be repeated.",
    "Take a seed from the configuration, or let rank 0 choose it and broadcast it to all.",
)


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for random numbers that are equal on all ranks: masks of dropout, noise for local data."""
    if case.trace.ranks > 1:
        yield from _masks(case)
        yield from _noise(case.trace)
    yield from _mapped(case.trace)


def _noise(trace: Trace) -> Iterator[Finding]:
    """Yield a finding for each line that repeatedly draws the same numbers on all ranks, one for each local row."""
    data = [trace.by_rank(kind) for kind in ("input", "global", "batch")]
    differ = [those for those in data if all(those.values()) and _differ(those)]
    rows = {len(event.data["samples"]) for those in differ for events in those.values() for event in events}
    if not rows:
        return
    draws: dict[tuple[object, ...], dict[int, dict[int, Event]]] = defaultdict(lambda: defaultdict(dict))
    for event in trace.of("draw"):
        key = event.where, event.data["name"], event.data.get("worker", -1), len(event.data["shape"])
        draws[key][event.data["count"]][event.rank] = event
    reported: set[object] = set()
    for (where, *_), by_count in draws.items():
        complete = [by_rank for by_rank in by_count.values() if len(by_rank) == trace.ranks]
        if where in reported or not complete or not _is_for_rows([one[0] for one in complete], rows):
            continue
        values = [{event.data["digest"] for event in by_rank.values()} for by_rank in complete]
        if all(len(one) == 1 for one in values) and len(set.union(*values)) > 1:
            reported.add(where)
            first = complete[0][0]
            name, shape = first.data["name"], tuple(first.data["shape"])
            what = f"{name}, shape {shape}" if shape else name
            text = f"all ranks draw the same numbers ({what}) {len(complete)} times, for different data"
            evidence = [(f"rank {rank}: {event.data['digest']}", event) for rank, event in complete[0].items()]
            if one := finding(SAME_NOISE, text, first, evidence[:2]):
                yield one


# So many single numbers must be equal on all ranks.
_FEWEST_NUMBERS = 8


def _is_for_rows(events: Sequence[Event], rows: set[int]) -> bool:
    """Return whether draws at one line are for the samples of a rank: an array has a row for each of them.

    Single numbers are drawn where a sample is made (``__getitem__``), or as often in a step as there are samples.
    """
    if any(event.data["shape"] for event in events):
        return len(events) >= _FEWEST and events[0].data["shape"][0] in rows
    is_sample = any(frame.function == "__getitem__" for frame in events[0].place)
    counts = Counter(event.step for event in events)
    full = list(counts.values())[:-1]  # the last step may be incomplete, as only the first draws are recorded
    is_of_rows = len(full) >= _FEWEST_STEPS and min(full) > 1 and set(full) <= rows
    return len(events) >= _FEWEST_NUMBERS and (is_sample or is_of_rows)


_FEWEST_STEPS = 2


def _differ(by_rank: Mapping[int, Sequence[Event]]) -> bool:
    """Return whether the ranks get different samples."""
    return any(
        len({tuple(event.data["samples"]) for event in events}) > 1 for events in zip(*by_rank.values(), strict=False)
    )


def _mapped(trace: Trace) -> Iterator[Finding]:
    """Yield a finding for each line that draws with one key on all devices, in a function that runs on each."""
    lines: dict[object, list[Event]] = defaultdict(list)
    for event in trace.of("mapped"):
        lines[event.where].append(event)
    for events in lines.values():
        keys = [key for event in events for key in event.data["keys"]]
        if len(keys) > 1 and len(set(keys)) == 1:
            text = f"{events[0].data['name']} draws with one key on all devices, each of which has other data"
            evidence = [(f"rank {event.rank}: the function does not use axis_index", event) for event in events[:2]]
            if one := finding(SAME_NOISE, text, events[0], evidence):
                yield one


def seeds(before: Trace, after: Trace) -> Iterator[Finding]:
    """Yield a finding for each line that seeds by the clock, the process, or the host: two runs of all ranks differ."""
    values: dict[tuple[object, str, int], list[dict[int, Event]]] = defaultdict(lambda: [{}, {}])
    for number, trace in enumerate((before, after)):
        for event in trace.of("seed"):
            values[event.where, event.data["name"], event.data["count"]][number][event.rank] = event
    reported: set[object] = set()
    for (where, name, _), (first, second) in values.items():
        changed = [
            rank for rank in first.keys() & second.keys() if first[rank].data["value"] != second[rank].data["value"]
        ]
        differ = [those for those in (first, second) if len({event.data["value"] for event in those.values()}) > 1]
        if where in reported or not changed or not differ or len(second) < after.ranks:
            continue
        reported.add(where)
        shown = ", ".join(f"rank {rank}: {event.data['value']}" for rank, event in sorted(differ[0].items())[:3])
        text = f"{name} gets a value that changes with each run and each rank ({shown})"
        runs = ((first[changed[0]], "in the quiet run"), (second[changed[0]], "in a later one"))
        evidence = [(f"rank {changed[0]} {when}: {event.data['value']}", event) for event, when in runs]
        if one := finding(SEEDS, text, second[changed[0]], evidence):
            yield one


def _masks(case: Case) -> Iterator[Finding]:
    """Yield a finding if all ranks have the same random state at their steps, and the model has dropout."""
    steps: dict[int, dict[int, Event]] = {}
    for event in case.trace.of("weights"):
        if event.data["optimizer"] == 0:
            steps.setdefault(event.data["number"], {})[event.rank] = event
    complete = [by_rank for by_rank in steps.values() if len(by_rank) == case.trace.ranks > 1]
    if len(complete) < _FEWEST or not all(event.data.get("dropout") for event in complete[0].values()):
        return
    states = [{event.data["random"] for event in by_rank.values()} for by_rank in complete]
    if all(len(state) == 1 for state in states) and len(set.union(*states)) > 1:
        first = complete[0][0]
        name, number = first.data["dropout"], len(complete)
        text = f"all ranks have the same random state at {number} steps, so dropout ({name}) is the same on all"
        evidence = [(f"rank {rank}: random state {event.data['random']}", event) for rank, event in complete[0].items()]
        if one := finding(SAME_MASKS, text, first, evidence[:2]):
            yield one


def is_of_rank_0(before: Trace, after: Trace, step: int) -> bool:
    """Return whether all ranks have one random state after a resume at ``step``, though their states
    differed before.
    """
    before_it = {e.data["random"] for e in before.of("weights") if e.data["number"] == step and "random" in e.data}
    now = [e.data["random"] for e in after.of("weights") if e.data["number"] == 0 and "random" in e.data]
    return len(before_it) == before.ranks > 1 and len(now) == before.ranks and len(set(now)) == 1
