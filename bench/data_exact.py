"""Exactness: what is read twice or lost, equal steps, the same global batches in every world, resumes in another."""

from __future__ import annotations

from typing import Any

from bench.data_place import Corpus, Place
from bench.data_runs import (
    GRAIN_ELASTIC,
    GRAIN_SLICE,
    HF_PARQUET,
    LITDATA,
    MOSAIC,
    OURS,
    OURS_JSONL,
    PEERS,
    Results,
    Way,
    below,
    rows_of,
    tried,
    two_at_a_time,
)
from bench.measure import Ran
from bench.page import table
from bench.runs import Goal, Part, Runs

WORLDS, QUICK_WORLDS = ",".join(map(str, range(1, 17))), "1,3,4,5,16"


def tables(place: Place, *, quick: bool, rounds: int) -> Part:
    """All ways on the small corpus, ours also on the large one and in worlds of every size to 16."""
    del rounds  # nothing here is timed
    ways = tried((*OURS, *PEERS), place, quick=quick)
    results = two_at_a_time(ways, lambda way: _job(place, way, place.small, "4,3"))
    odd = two_at_a_time(ways, lambda way: _job(place, way, place.odd, "4"))
    worlds, corpus = (QUICK_WORLDS, place.small) if quick else (WORLDS, place.large)
    whole = two_at_a_time(OURS, lambda way: _job(place, way, corpus, worlds))
    headers = (
        *("ranks read, one after the other", "steps W=4", "twice / lost", "steps W=3", "twice / lost"),
        *("same global batches", "odd tail: steps", "4 -> 3: twice / lost", "steps"),
    )
    rows = rows_of(results, lambda way, runs: _cells(runs, odd[way]))
    text = [table(headers, rows), *below(results, place, *_all_worlds(whole, corpus))]
    return Part("\n\n".join(text), (*_goals(whole, results),))


def _job(place: Place, way: Way, corpus: Corpus, worlds: str) -> Ran:
    elastic = "4-3" if corpus is place.small else ""
    return place.run("data_exact.py", way.name, corpus.folder, corpus.documents, worlds, elastic, own=way.own)


def _cells(runs: Runs, odd: Runs) -> tuple[str, ...]:
    told = runs.told[0][0]
    four, three = told["worlds"]["4"], told["worlds"]["3"]
    tail = _steps(odd.told[0][0]["worlds"]["4"]) if odd.told else "-"
    worlds = (_steps(four), _twice_lost(four), _steps(three), _twice_lost(three))
    resumed = told["elastic"]
    after = (resumed["failed"], "-") if "failed" in resumed else (_twice_lost(resumed), _steps(resumed))
    return (*worlds, f"{100 * told['same']:.0f} %", tail, *after)


def _steps(world: Any) -> str:
    least, most = world["steps"]
    return f"{most:,}" if least == most else f"**{least:,}-{most:,}**"


def _twice_lost(world: Any) -> str:
    return f"{world['twice']:,} / {world['lost']:,}"


def _all_worlds(whole: Results, corpus: Corpus) -> list[str]:
    lines = []
    for way, runs in whole.items():
        for job in runs.told:
            twice, lost, uneven = _worst(job[0]["worlds"])
            lines.append(
                f"{way.label}, {corpus.documents:,} documents, worlds of 1 to 16 ranks: {twice} read twice, "
                f"{lost} lost, steps max - min {uneven}, same global batches {100 * job[0]['same']:.0f} %. "
                "If the size does not divide 96, the batch is the next multiple of it."
            )
        lines += [f"{way.label}, worlds of 1 to 16 ranks: {failure}" for failure in runs.failures]
    return lines


def _worst(worlds: Any) -> tuple[int, int, int]:
    every = worlds.values()
    return (
        max(world["twice"] for world in every),
        max(world["lost"] for world in every),
        max(world["steps"][1] - world["steps"][0] for world in every),
    )


def _goals(whole: Results, results: Results) -> list[Goal]:
    told = [job[0] for runs in whole.values() for job in runs.told]
    failed = any(runs.failures for runs in whole.values()) or not told
    worst = [_worst(one["worlds"]) for one in told]
    wrong = float("nan") if failed else float(max(map(max, worst)))
    shared = float("nan") if failed else min(one["same"] for one in told)
    elastic = results[OURS_JSONL].told[0][0]["elastic"] if results[OURS_JSONL].told else {}
    wrong_after = float(elastic.get("twice", 1) + elastic.get("lost", 1))
    after = _twice_lost(elastic) if "twice" in elastic else "failed"
    told_of = (MOSAIC, GRAIN_SLICE, GRAIN_ELASTIC, LITDATA, HF_PARQUET)
    return [
        Goal(
            *("worlds 1-16: read twice, lost, steps max - min", "0, 0, 0"),
            ", ".join(str(max(column)) for column in zip(*worst, strict=True)),
            *(_peers(results, told_of, "4"), wrong, 0),
        ),
        Goal("the same global batches", "100 %", f"{100 * shared:.0f} %", "", 1 - shared, 0),
        Goal("4 -> 3 ranks in the middle: read twice, lost", "0, 0", after, _resumed(results, told_of), wrong_after, 0),
    ]


def _peers(results: Results, ways: tuple[Way, ...], world: str) -> str:
    found = {way: results[way].told[0][0]["worlds"][world] for way in ways if way in results and results[way].told}
    return ", ".join(f"{way.label} {_twice_lost(one)}, {_steps(one)} steps" for way, one in found.items())


def _resumed(results: Results, ways: tuple[Way, ...]) -> str:
    found = {way: results[way].told[0][0]["elastic"] for way in ways if way in results and results[way].told}
    return ", ".join(f"{way.label} {one.get('failed') or _twice_lost(one)}" for way, one in found.items())
