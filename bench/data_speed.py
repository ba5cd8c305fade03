"""Speed and memory of one process, first batches of fresh and of resumed starts, and the bytes that a rank reads."""

from __future__ import annotations

import math
from pathlib import Path

from bench.data_place import Corpus, Place
from bench.data_runs import (
    GRAIN_ELASTIC,
    GRAIN_SLICE,
    HF_JSONL,
    HF_PARQUET,
    LITDATA,
    MOSAIC,
    OURS,
    OURS_JSONL,
    OURS_PARQUET,
    PEERS,
    PLAIN_JSONL,
    PLAIN_PARQUET,
    TORCHDATA,
    Results,
    Way,
    below,
    figure,
    rate,
    reading,
    rows_of,
    times,
    tried,
    two_at_a_time,
)
from bench.measure import Ran
from bench.page import table
from bench.runs import Goal, Part, Runs, Told, jobs, megabytes, seconds, x

SIZE, READ = 4, 2.0  # the world of the rank that reads; seconds to read
SLOWER_TWINS = {TORCHDATA, GRAIN_SLICE}  # they read as others do
WITH_TEXT = Way("allranks, parquet, texts as lists", "ours-parquet-text", "parquet")
AGAIN = Way("allranks, jsonl, ten times the corpus", "ours-jsonl", "jsonl")


def tables(place: Place, *, quick: bool, rounds: int) -> Part:
    """Ways in turns. Where there is a state it was saved at 80 % of the epoch."""
    ways = tried((*OURS, *PEERS, PLAIN_JSONL, PLAIN_PARQUET), place, quick=quick)
    ways = [way for way in ways if way not in SLOWER_TWINS]
    ways.insert(1, HF_PARQUET if quick else AGAIN)
    ways.insert(2, WITH_TEXT)
    states = two_at_a_time(ways, lambda way: reading(place, way, _corpus(place, way), SIZE, keep=_state(place, way)))

    def job(way: Way) -> Ran:
        return reading(place, way, _corpus(place, way), SIZE, seconds=0.5 if quick else READ, resume=_state(place, way))

    results = jobs(ways, job, rounds)
    headers = (
        *("rank 0 of 4, shuffled, one process", "samples/s", "of the plain loop", "allranks is faster", "memory"),
        *("first batch", "resumed at 80 %", "resumed / fresh", "state"),
    )
    rows = rows_of(results, lambda way, _: _cells(way, results, states))
    return Part("\n\n".join([table(headers, rows), *below(results, place)]), _goals(results, states))


def _corpus(place: Place, way: Way) -> Corpus:
    return place.tenfold if way is AGAIN else place.large


def _state(place: Place, way: Way) -> str:
    return str(Path(_corpus(place, way).folder, f"{way.name}.state"))


def _plain(way: Way) -> Way:
    return PLAIN_PARQUET if way.form == "parquet" else PLAIN_JSONL


def _ours(way: Way) -> Way:
    return OURS_PARQUET if way.form == "parquet" else OURS_JSONL


def slower(told: Told) -> float:
    """The first batch of a resumed start over that of a fresh one."""
    return float(told[0].get("resumed", math.nan)) / float(told[0]["fresh"])


def _cells(way: Way, results: Results, states: Results) -> tuple[str, ...]:
    runs = results[way]
    plain = times(runs, results[_plain(way)], rate)
    ours = math.nan if way in (*OURS, AGAIN, WITH_TEXT) else times(results[_ours(way)], runs, rate)
    speed = (f"{runs.median(rate):,.0f}", x(plain), x(ours), megabytes(runs.median(figure("memory"))))
    resumed = [told[0]["resumed"] for told in runs.told if "resumed" in told[0]]
    later = seconds(Runs(tuple(({"resumed": one},) for one in resumed), ()).median(figure("resumed")))
    start = (seconds(runs.median(figure("fresh"))), later, x(runs.median(slower)))
    state = states[way].median(figure("state"))
    return (*speed, *start, "-" if not state > 0 else f"{state:,.0f} B")


def _goals(results: Results, states: Results) -> tuple[Goal, ...]:
    def against(ours: Way, peer: Way, least: float, what: str) -> Goal:
        found = times(results[ours], results[peer], rate) if peer in results else math.nan
        theirs = f"{peer.label} {results[peer].median(rate):,.0f}/s" if peer in results else "not tried"
        return Goal(f"speed against {what}", f">= {least:g} x", x(found), theirs, least / found, 1)

    jsonl, again = results[OURS_JSONL], results.get(AGAIN)
    worst = max(results[way].median(slower) for way in OURS)
    state = max(states[way].median(figure("state")) for way in OURS)
    memory = max(results[way].median(figure("memory")) for way in OURS)
    plain = min(times(results[way], results[_plain(way)], rate) for way in OURS)
    tenfold = math.nan
    if again and again.told:
        tenfold = again.median(figure("resumed")) / jsonl.median(figure("resumed"))
    return (
        against(OURS_PARQUET, HF_PARQUET, 8, "HF streaming, parquet"),
        against(OURS_JSONL, HF_JSONL, 8, "HF streaming, jsonl"),
        against(OURS_JSONL, LITDATA, 3, "litdata"),
        against(OURS_JSONL, MOSAIC, 50, "mosaicml-streaming"),
        against(OURS_JSONL, GRAIN_ELASTIC, 50, "grain, random records"),
        Goal("speed against a plain read-and-decode loop", ">= 0.6 x", x(plain), "", 0.6 / plain, 1),
        Goal("resume at 80 %: first batch against a fresh start", "<= 1.2 x", x(worst), "", worst, 1.2),
        Goal("the same on ten times the corpus against once", "independent (<= 1.5 x)", x(tenfold), "", tenfold, 1.5),
        Goal("state", "<= 256 B", f"{state:.0f} B", _states(states), state, 256),
        Goal("memory of a rank", "<= 64 MB", megabytes(memory), _memories(results), memory, 64e6),
    )


def _states(states: Results) -> str:
    told = {way: runs.median(figure("state")) for way, runs in states.items() if way.name[:4] not in ("ours", "plai")}
    return ", ".join(f"{way.label} {size:,.0f} B" for way, size in told.items() if size > 0)


def _memories(results: Results) -> str:
    told = {way: runs.median(figure("memory")) for way, runs in results.items() if way in (HF_PARQUET, LITDATA)}
    return ", ".join(f"{way.label} {megabytes(size)}" for way, size in told.items())


def bytes_read(place: Place, *, quick: bool, rounds: int) -> Part:
    """What rank 0 asks the file system for, over its share of the corpus, for files that divide by the ranks or not."""
    del rounds  # bytes are the same every time
    ways = tried((*OURS, HF_JSONL, HF_PARQUET), place, quick=quick)
    cases = [(corpus, size) for corpus in (place.large, place.more) for size in ((4,) if quick else (4, 3))]
    found = {
        case: two_at_a_time(ways, lambda way, case=case: reading(place, way, *case, seconds=2.0 if quick else 10.0))
        for case in cases
    }
    headers = ("bytes read, of a rank's share", *(f"{corpus.files} files, W={size}" for corpus, size in cases))
    rows = [(way.label, *(x(_share(way, found[case][way], *case)) for case in cases)) for way in ways]
    worst = max(_share(way, found[case][way], *case) for case in cases for way in OURS)
    others = [way for way in ways if way not in OURS]
    theirs = max((_share(way, found[case][way], *case) for case in cases for way in others), default=math.nan)
    goal = Goal("bytes read by a rank", "<= 1.05 of its share", x(worst), f"HF streaming {x(theirs)}", worst, 1.05)
    return Part(table(headers, rows), (goal,))


def _share(way: Way, runs: Runs, corpus: Corpus, _: int) -> float:
    def of_share(told: Told) -> float:
        return float(told[0]["read"]) / (corpus.nbytes(way.form) * told[0]["samples"] / corpus.documents)

    return runs.median(of_share)
