"""Data: every figure beside the peers', of the same documents, in the same rounds; and the goals.

The corpus is made by a program from a seed, and put into the form of each peer once; both are not timed. A job is a
fresh process that reads as rank 0 of 4. The ways take turns; the tables show medians over the rounds.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping

from bench import data_exact, data_parts, data_place, data_restarts, data_speed, data_spread, data_tokens, data_train
from bench.data_runs import OURS, PEERS, QUICK
from bench.page import table
from bench.runs import Goal, Part

PARTS: Mapping[str, Callable[..., Part]] = {
    "Exactness": data_exact.tables,
    "Restarts": data_restarts.tables,
    "Bytes read": data_speed.bytes_read,
    "One process": data_speed.tables,
    "Steps of 20 ms": data_train.tables,
    "Tokens and devices": data_tokens.tables,
    "Shuffle": data_spread.tables,
    "Parts": data_parts.tables,
}
ROUNDS = 5
NEEDED = 8e9  # bytes of disk: the corpora, and the peers' own environment
LIBRARIES = ("datasets", "grain", "litdata", "webdataset", "pyarrow", "orjson")


def tables(*, quick: bool) -> str:
    """Return the goals, then the tables."""
    folder = tempfile.gettempdir()
    if (free := shutil.disk_usage(folder).free) < NEEDED:
        raise RuntimeError(f"{folder} has {free / 1e9:.1f} GB free, {NEEDED / 1e9:.0f} GB are needed: set TMPDIR")
    texts, goals = [], list[Goal]()
    ways = [way for way in (*OURS, *PEERS) if not quick or way in QUICK]
    begin = time.monotonic()
    with data_place.made(quick=quick, forms=dict.fromkeys(way.form for way in ways)) as place:
        print(f" corpora: took {time.monotonic() - begin:.0f} s", file=sys.stderr)
        for title, part in PARTS.items():
            print(f" {title}", file=sys.stderr)
            begin = time.monotonic()
            made = part(place, quick=quick, rounds=1 if quick else ROUNDS)
            print(f" {title}: took {time.monotonic() - begin:.0f} s", file=sys.stderr)
            texts.append(f"### {title}\n\n{made.text}")
            goals += made.goals
    headers = ("figure", "goal", "allranks", "peers", "reached")
    small = " A tenth of the documents, one round, few peers: the ratios mean little." if quick else ""
    return "\n\n".join(
        ["### Goals", table(headers, [goal.row() for goal in goals]), *texts, f"Peers: {_versions()}.{small}"]
    )


def _versions() -> str:
    own = ", ".join(name.replace("==", " ") for name in data_place.OWN if "==" in name)
    return ", ".join(f"{name} {_version(name)}" for name in LIBRARIES) + f"; in their own environment {own}"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"
