"""What the data benches share: the ways to read, who can run here, and ratios within rounds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from bench.data_place import Corpus, Place
from bench.measure import Ran, median
from bench.runs import Runs, Told, jobs


@dataclass(frozen=True, slots=True)
class Way:
    """A way to read: its row in the table, its name in programs/data_peers.py, the form of the corpus that it reads.

    ``own`` ways run in the peers' own environment; ``mapped`` ones read memory maps, of which nobody counts bytes.
    """

    label: str
    name: str
    form: str
    own: bool = False
    mapped: bool = False


OURS_JSONL = Way("allranks, jsonl", "ours-jsonl", "jsonl")
OURS_PARQUET = Way("allranks, parquet", "ours-parquet", "parquet")
HF_JSONL = Way("HF streaming, jsonl", "hf-jsonl", "jsonl")
HF_PARQUET = Way("HF streaming, parquet", "hf-parquet", "parquet")
HF_MAP = Way("HF map-style, torch's DistributedSampler", "hf-map", "arrow", mapped=True)
TORCHDATA = Way("HF map-style, torchdata", "hf-torchdata", "arrow", own=True, mapped=True)
GRAIN_ELASTIC = Way("grain ElasticIterator", "grain-elastic", "arrayrecord")
GRAIN_SLICE = Way("grain MapDataset `ds[r::W]`", "grain-slice", "arrayrecord")
GRAIN_PARQUET = Way("grain, parquet interleaved", "grain-parquet", "parquet")
LITDATA = Way("litdata", "litdata", "litdata", mapped=True)
MOSAIC = Way("mosaicml-streaming", "mosaic", "mds", own=True)
WEBDATASET = Way("webdataset", "webdataset", "tar")
MEMORY_MAP = Way("memory map, permuted (Megatron's rule)", "memory-map", "offsets", mapped=True)
PLAIN_JSONL = Way("plain loop, jsonl, not shuffled", "plain-jsonl", "jsonl")
PLAIN_PARQUET = Way("plain loop, parquet, not shuffled", "plain-parquet", "parquet")

OURS = (OURS_JSONL, OURS_PARQUET)
PEERS = (
    *(HF_JSONL, HF_PARQUET, HF_MAP, TORCHDATA, GRAIN_ELASTIC, GRAIN_SLICE, GRAIN_PARQUET),
    *(LITDATA, MOSAIC, WEBDATASET, MEMORY_MAP),
)
QUICK = {*OURS, MEMORY_MAP, PLAIN_JSONL, PLAIN_PARQUET}
Results = Mapping[Way, Runs]


def tried(ways: Iterable[Way], place: Place, *, quick: bool) -> list[Way]:
    """The ways to run: all that are there, or the few that show whether the bench works."""
    return [way for way in ways if not missing(way, place) and (not quick or way in QUICK)]


def missing(way: Way, place: Place) -> str:
    """Why a way cannot be tried; nothing if it can."""
    return place.missing.get(way.form, place.missing.get("own", "") if way.own else "")


def rows_of(results: Results, cells: Callable[[Way, Runs], Sequence[str]]) -> list[tuple[str, ...]]:
    """A row for each way that told something."""
    return [(way.label, *cells(way, runs)) for way, runs in results.items() if runs.told]


def below(results: Results, place: Place, *more: str) -> list[str]:
    """What is said below a table: who failed and how, who is not there and why."""
    failed = [f"{way.label} failed: {runs.failures[-1]}" for way, runs in results.items() if runs.failures]
    absent = [f"{way.label} is not installed here: {why}" for way in PEERS if (why := missing(way, place))]
    return [*failed, *absent, *more]


def two_at_a_time(ways: Sequence[Way], job: Callable[[Way], Ran]) -> Results:
    """Run each way's job once, where no time is taken."""
    with ThreadPoolExecutor(2) as pool:
        alone = {way: pool.submit(jobs, [way], job, 1) for way in ways}
    return {way: done.result()[way] for way, done in alone.items()}


def reading(place: Place, way: Way, corpus: Corpus, size: int, **options: Any) -> Ran:
    """Let rank 0 of a world read (programs/data_read.py)."""
    words = json.dumps({"size": size, "documents": corpus.documents, **options})
    return place.run("data_read.py", way.name, corpus.folder, place.small.folder, words, own=way.own)


def figure(name: str) -> Callable[[Told], float]:
    return lambda told: float(told[0][name])


def rate(told: Told) -> float:
    """Samples a second."""
    return float(told[0]["samples"] / told[0]["seconds"])


def times(one: Runs, other: Runs, what: Callable[[Told], float]) -> float:
    """How many times the other's figure the one's is: the median over the rounds; nan where one has none."""
    rounds = list(zip(one.told, other.told, strict=False))
    return median(what(mine) / what(its) for mine, its in rounds) if rounds else float("nan")
