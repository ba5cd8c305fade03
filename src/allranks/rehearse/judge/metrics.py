"""Find a value that one rank logs, computed from its own part of the data and never reduced over the ranks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from allranks.findings import Finding
from allranks.rehearse.judge.base import Case, Kind, finding
from allranks.rehearse.trace import Event, Frame

NOT_REDUCED = Kind(
    "AR310",
    "metric-not-reduced",
    "warning",
    "The curve shows one rank's part of the data; a decision by it (best, early stop) is one rank's.",
    "Reduce the value over the ranks first (all_reduce of the sum and the count), then log it on rank 0.",
)
# The values that all ranks have at a line, by rank, in the order of time.
_Values = Mapping[int, Sequence[Event]]
# How a logged value may follow from the last values of a line: their sum, their mean, or their sum per sample.
_FORMS = ("the sum of", "the mean of", "the sum by sample of")
# A logged value is computed in 32 bits. The ranks' own values must differ by more.
_CLOSE, _DIFFERENT = 1e-5, 1e-4


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for each line that logs a value of one rank's part of the data, which was not reduced."""
    if case.trace.ranks == 1:
        return
    values = _values(case)
    samples = case.trace.by_rank("batch")
    logs: dict[tuple[Frame | None, str], list[Event]] = defaultdict(list)
    for event in case.trace.of("logged"):
        logs[event.where, event.data["name"]].append(event)
    for events in logs.values():
        is_of_all = len({event.rank for event in events}) == case.trace.ranks
        if is_of_all and events[0].data.get("is_file"):
            continue  # each rank keeps its own file
        mine = [event for event in events if event.rank == events[0].rank]
        if (found := _source(mine, values, samples)) and (one := _found(mine[0], *found)):
            yield one


def _values(case: Case) -> list[_Values]:
    lines: dict[object, dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in case.trace.of("value"):
        lines[event.where][event.rank].append(event)
    return [by_rank for by_rank in lines.values() if len(by_rank) == case.trace.ranks]


def _source(
    logged: Sequence[Event], values: Sequence[_Values], samples: Mapping[int, Sequence[Event]]
) -> tuple[str, Mapping[int, float], Event] | None:
    """Return of what the logged values are made, that value on each rank, and an event of it; None if they differ.

    All logged values must be made in one way of the values of one line, which differ between the ranks.
    """
    if all(float(event.data["value"]).is_integer() for event in logged):
        return None  # the number of an epoch or step may be equal to anything
    for by_rank in values:
        for form in _FORMS:
            for is_window in (False, True):
                made = [
                    _made(event, before, by_rank, samples, form, is_window=is_window)
                    for before, event in zip([None, *logged], logged, strict=False)
                ]
                differing = [one for one in made if one and _differ(one)]
                if differing and all(map(_matches, logged, made)):
                    shown = differing[0]
                    last = [one for one in by_rank[logged[0].rank] if one.time <= logged[0].time][-1]
                    return ("" if not is_window else form), shown, last
    return None


def _made(
    event: Event,
    before: Event | None,
    by_rank: _Values,
    samples: Mapping[int, Sequence[Event]],
    form: str,
    *,
    is_window: bool,
) -> dict[int, float]:
    """Return what each rank would have logged; {} if a rank does not have all the values.

    Without ``is_window`` it is made of the last value, else of all values since the last one was logged.
    """
    since = before.time if before else -math.inf
    mine = [one for one in by_rank[event.rank] if since < one.time <= event.time]
    counts = [one.data["count"] for one in (mine if is_window else mine[-1:])]
    made: dict[int, float] = {}
    for rank, events in by_rank.items():
        known = {one.data["count"]: one.data["value"] for one in events}
        if not counts or any(count not in known for count in counts):
            return {}
        total = math.fsum(known[count] for count in counts)
        number = len(counts)
        if form == _FORMS[2]:
            number = sum(len(e.data["samples"]) for e in samples[event.rank] if since < e.time <= event.time)
        made[rank] = total if form == _FORMS[0] else total / (number or 1)
    return made


def _matches(event: Event, made: Mapping[int, float]) -> bool:
    value = event.data["value"]
    return (
        bool(made)
        and any(math.isclose(value, factor * made[event.rank], rel_tol=_CLOSE) for factor in (1, 100))
        and math.isfinite(value)
    )


def _differ(made: Mapping[int, float]) -> bool:
    return not math.isclose(min(made.values()), max(made.values()), rel_tol=_DIFFERENT)


def _found(event: Event, form: str, made: Mapping[int, float], source: Event) -> Finding | None:
    shown = ", ".join(f"rank {rank}: {value:.6g}" for rank, value in sorted(made.items()))
    text = f"rank {event.rank} logs {event.data['name']!r} of its own part of the data ({shown})"
    of = f"it is {form} the values here, which differ" if form else "the value is read here, and differs"
    return finding(NOT_REDUCED, text, event, [(f"{of} between ranks", source)])
