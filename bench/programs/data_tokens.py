"""Read tokens, as a loop of nanoGPT does and as we do, in turns.

argv: folder, tokens, length of a window, seconds a turn, rounds.

Tells the tokens a second of every round: ``bare`` gathers from a memory map at random, ``ordered`` and
``random`` are ours. All give int64 tokens and targets in batches of 24 rows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from told import tell

import allranks

ROWS = 24
folder, seconds = Path(sys.argv[1]), float(sys.argv[4])
tokens, length, rounds = int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[5])
path = folder / "train.bin"


def bare(length: int) -> Iterator[Any]:
    data = np.memmap(path, np.uint16, "r")
    draw = np.random.default_rng(0)
    while True:
        starts = draw.integers(0, len(data) - length, ROWS)
        x = np.stack([data[at : at + length].astype(np.int64) for at in starts])
        yield x, np.stack([data[at + 1 : at + 1 + length].astype(np.int64) for at in starts])


def ours(length: int, *, random: bool) -> Iterator[Any]:
    data = allranks.Dataset.tokens(path, length=length, targets=True)
    loader = (data.random(0) if random else data).batch(4 * ROWS).loader(rank=0, size=4)
    try:
        while True:
            yield from loader
    finally:
        loader.close()


def rate(batches: Iterator[Any], length: int) -> float:
    """Tokens a second, after the first batch."""
    next(batches)
    begin, taken = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        next(batches)
        taken += 1
    found = taken * ROWS * length / (time.perf_counter() - begin)
    batches.close()  # type: ignore[attr-defined]
    return found


folder.mkdir(exist_ok=True)
np.random.default_rng(0).integers(0, 50257, tokens).astype(np.uint16).tofile(path)
turns = [
    (rate(bare(length), length), rate(ours(length, random=False), length), rate(ours(length, random=True), length))
    for _ in range(rounds)
]
bare_rates, ordered, random = zip(*turns, strict=True)
tell(bare=bare_rates, ordered=ordered, random=random)
path.unlink()
