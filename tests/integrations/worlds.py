"""Ranks that make what they read with, all at once, and read one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allranks import Dataset, SimulatedWorld, World

SAMPLES, BATCH = 203, 12


def numbers() -> Dataset:
    """203 samples, each with its number; 17 steps, the last of which is padded."""
    rows = [{"x": one} for one in range(SAMPLES)]
    return Dataset.sequence(rows, seed=3).map(lambda row: {**row, "square": row["x"] ** 2}).batch(BATCH)


def on(size: int, program: Callable[[World], Any]) -> list[Any]:
    """Return what all ranks return."""
    outcome = SimulatedWorld(size).run(program)
    assert not outcome.errors, outcome.errors
    return [outcome.results[rank] for rank in range(size)]


def reference(epoch: int = 0) -> list[list[int]]:
    """The global batches, as our own loader gives them to one rank: -1 is padding."""
    loader = numbers().loader(rank=0, size=1)
    for _ in range(epoch):
        list(loader)
    return [batch.ids.tolist() for batch in loader]


def together(ranks: list[list[list[int]]]) -> list[list[int]]:
    """The global batches that ranks took together, each as many steps."""
    return [[row for part in parts for row in part] for parts in zip(*ranks, strict=True)]
