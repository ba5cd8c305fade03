"""Foreign checkpoints into a torch model that is there: our loader and each library's own, in turns."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.measure import PROGRAMS, Ran, must, run
from bench.page import table
from bench.runs import Runs, Told, jobs, megabytes, seconds, x

PROGRAM = PROGRAMS / "load.py"


@dataclass(frozen=True, slots=True)
class Way:
    """How ``name`` loads; ``label`` as bench/programs/load.py calls it."""

    name: str
    label: str


# Each format: its own library's loaders, then ours.
FORMATS = {
    "safetensors": (Way("load_file", "safetensors"), Way("allranks.load", "ours a.safetensors")),
    "torch.save": (
        Way("torch.load", "torch"),
        Way("torch.load(mmap=True)", "torch mmap"),
        Way("allranks.load", "ours a.pt"),
    ),
    "DCP": (Way("dcp.load", "DCP"), Way("allranks.load", "ours dcp")),
    "Orbax": (Way("PyTree restore", "Orbax"), Way("allranks.load", "ours orbax")),
    "msgpack": (Way("as Flax does", "msgpack"), Way("allranks.load", "ours a.msgpack")),
}


def tables(*, quick: bool) -> str:
    """Both tables, and what of the goals is missed."""
    rounds = 1 if quick else 5
    kinds = {"quick": "4 MB in 16 tensors"} if quick else {"large": "1,074 MB in 64 tensors", "many": "66 MB in 4,000"}
    with tempfile.TemporaryDirectory() as folder:
        for kind in {"quick": "", **kinds}:
            (Path(folder) / kind).mkdir()
            must(run([sys.executable, PROGRAM, "make", kind, Path(folder) / kind]))
        found = {title: _measured(kind, Path(folder) / kind, rounds) for kind, title in kinds.items()}
    return "\n\n".join(_table(title, results) for title, results in found.items())


def _measured(kind: str, folder: Path, rounds: int) -> Mapping[Way, Runs]:
    ways = [way for its in FORMATS.values() for way in its]
    return jobs(ways, partial(_job, kind, folder), rounds)


def _job(kind: str, folder: Path, way: Way) -> Ran:
    return run([sys.executable, PROGRAM, way.label, kind, folder], env={"RANK": "0"}, limit=60)


def _seconds(told: Told) -> float:
    return float(told[0]["seconds"])


def _memory(told: Told) -> float:
    return float(told[0]["memory"])


def _table(title: str, results: Mapping[Way, Runs]) -> str:
    """A row for each way; the ratios are to the best of the format's own loaders."""
    rows = []
    for form, ways in FORMATS.items():
        taken = {way: results[way].median(_seconds) for way in ways}
        extra = {way: results[way].median(_memory) for way in ways}
        fastest = min((taken[way] for way in ways[:-1] if not math.isnan(taken[way])), default=math.nan)
        leanest = min((extra[way] for way in ways[:-1] if not math.isnan(extra[way])), default=math.nan)
        for way in ways:
            ratios = (x(taken[way] / fastest), x(extra[way] / leanest) if leanest else "-")
            rows.append((form, way.name, seconds(taken[way]), ratios[0], megabytes(extra[way]), ratios[1]))
    return table((title, "by", "time", "of the fastest own", "extra memory", "of the leanest own"), rows)
