"""How well orders are shuffled, by their first 1 %."""

from __future__ import annotations

from bench.data_place import Place
from bench.data_runs import (
    GRAIN_PARQUET,
    HF_PARQUET,
    LITDATA,
    MEMORY_MAP,
    MOSAIC,
    OURS,
    OURS_JSONL,
    WEBDATASET,
    Results,
    below,
    figure,
    rows_of,
    tried,
    two_at_a_time,
)
from bench.page import table
from bench.runs import Goal, Part, Runs, x

WAYS = (*OURS, HF_PARQUET, GRAIN_PARQUET, WEBDATASET, LITDATA, MOSAIC, MEMORY_MAP)
touched, neighbours = figure("touched"), figure("neighbours")


def near(runs: Runs) -> float:
    """Neighbours, of those of a uniform order."""
    return runs.median(lambda told: neighbours(told) / figure("uniform_neighbours")(told))


def tables(place: Place, *, quick: bool, rounds: int) -> Part:
    del rounds  # an order is the same every time
    ways, corpus = tried(WAYS, place, quick=quick), place.large
    results = two_at_a_time(
        ways, lambda way: place.run("data_spread.py", way.name, corpus.folder, corpus.documents, own=way.own)
    )
    headers = ("4 ranks, the first 1 % of the epoch", "corpus touched", "neighbours in a global batch, of uniform")
    rows = rows_of(results, lambda _, runs: (_percent(runs), x(near(runs))))
    return Part("\n\n".join([table(headers, rows), *below(results, place)]), _goals(results))


def _percent(runs: Runs) -> str:
    return f"{100 * runs.median(touched):.1f} %"


def _goals(results: Results) -> tuple[Goal, ...]:
    others = {way: runs for way, runs in results.items() if way not in OURS and runs.told}
    worst = max(near(results[way]) for way in OURS)
    spread = ", ".join(f"{way.label} {_percent(runs)}" for way, runs in others.items())
    beside = ", ".join(f"{way.label} {x(near(runs))}" for way, runs in others.items())
    return (
        *(
            Goal(
                *(f"the first 1 % touches, {way.form}", ">= 95 % of the corpus", _percent(results[way])),
                *(spread if way is OURS_JSONL else "", 0.95 / results[way].median(touched), 1),
            )
            for way in OURS
        ),
        Goal("neighbours in a global batch", "<= 2 x uniform", x(worst), beside, worst, 2),
    )
