"""Checkpoints: every figure beside the raw limit and beside the peers, in the same rounds; and the goals.

A job is a fresh process (or four), which makes a state, takes the raw limit, saves, takes it again, saves again,
restores. The ways take turns; a ratio is taken within a job, and the table shows the median over the jobs.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping

from bench import (
    checkpoint_coordination,
    checkpoint_loop,
    checkpoint_one,
    checkpoint_ranks,
    checkpoint_verify,
)
from bench.page import table
from bench.runs import Goal, Part

PARTS: Mapping[str, Callable[..., Part]] = {
    "One process": checkpoint_one.large,
    "Many small leaves": checkpoint_one.small,
    "Four processes": checkpoint_ranks.tables,
    "Training time lost": checkpoint_loop.tables,
    "Reading it again": checkpoint_verify.tables,
    "Coordination of 10,000 ranks": checkpoint_coordination.tables,
}
ROUNDS = 5
NEEDED = 8e9  # bytes of disk, of which half are in use at a time
PEERS = ("orbax-checkpoint", "tensorstore", "safetensors", "torchsnapshot")


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def tables(*, quick: bool) -> str:
    """Return the goals, then the tables."""
    folder = tempfile.gettempdir()
    if (free := shutil.disk_usage(folder).free) < NEEDED:
        raise RuntimeError(f"{folder} has {free / 1e9:.1f} GB free, {NEEDED / 1e9:.0f} GB are needed: set TMPDIR")
    texts, goals = [], list[Goal]()
    for title, part in PARTS.items():
        print(f" {title}", file=sys.stderr)
        begin = time.monotonic()
        try:
            made = part(quick=quick, rounds=1 if quick else ROUNDS)
        except NotImplementedError as unfinished:
            made = Part(f"Unfinished: {unfinished}.", ())
        print(f" {title}: took {time.monotonic() - begin:.0f} s", file=sys.stderr)
        texts.append(f"### {title}\n\n{made.text}")
        goals += made.goals
    headers = ("figure", "goal", "allranks", "peers, in their best setting", "reached")
    versions = ", ".join(f"{name} {_version(name)}" for name in PEERS)
    small = " A tenth of the bytes, one round, fewer peers: the ratios mean little." if quick else ""
    return "\n\n".join(
        ["### Goals", table(headers, [goal.row() for goal in goals]), *texts, f"Peers: {versions}.{small}"]
    )
