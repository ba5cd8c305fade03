"""A rank that trains, in steps of 20 ms: how long it waits for a batch, and how long it took to the first one."""

from __future__ import annotations

from bench.data_place import Place
from bench.data_runs import (
    GRAIN_PARQUET,
    HF_MAP,
    HF_PARQUET,
    LITDATA,
    OURS,
    OURS_JSONL,
    OURS_PARQUET,
    figure,
    tried,
)
from bench.measure import median
from bench.runs import Goal, Part, Runs, Told, jobs, seconds, tabulated

SIZE = 4
WAYS = (*OURS, HF_PARQUET, HF_MAP, GRAIN_PARQUET, LITDATA)


def waited(told: Told) -> float:
    return median(told[0]["waits"])


def longest(told: Told) -> float:
    """The 99th percentile."""
    waits = sorted(told[0]["waits"])
    return float(waits[int(0.99 * len(waits))])


def tables(place: Place, *, quick: bool, rounds: int) -> Part:
    ways = tried(WAYS, place, quick=quick)
    steps = 50 if quick else 200
    results = jobs(
        ways,
        lambda way: place.run("data_train.py", way.name, place.large.folder, SIZE, steps, own=way.own),
        min(rounds, 3),
    )
    headers = ("rank 0 of 4, steps of 20 ms", "waits: median", "99 %", "start of the process to the first batch")

    def cells(runs: Runs) -> tuple[str, ...]:
        return tuple(seconds(runs.median(what)) for what in (waited, longest, figure("start")))

    ours = max(results[way].median(waited) for way in (OURS_JSONL, OURS_PARQUET))
    theirs = ", ".join(f"{way.label} {seconds(results[way].median(waited))}" for way in ways if way not in OURS)
    goal = Goal("waiting for a batch, steps of 20 ms", "< 1 ms in the median", seconds(ours), theirs, ours, 1e-3)
    return Part(tabulated(headers, results, cells), (goal,))
