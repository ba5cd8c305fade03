"""Barrier and gather against the frameworks' own, on real ranks; and how the store's work grows with simulated ones."""

from __future__ import annotations

import time

from allranks import SimulatedWorld, World
from allranks.world.base import DEFAULT_FANOUT
from bench.measure import PROGRAMS, allranks, median, must, run
from bench.page import duration, table

SIZES = (2, 4, 8, 16)
SIMULATED = (10, 100, 1000, 10_000)
BARRIERS = 4


def meetings(framework: str, rounds: int, calls: int) -> str:
    """One run for each size, in which all ways take turns."""
    found = [must(run(allranks(size, PROGRAMS / "meetings.py", framework, rounds, calls))).told[0] for size in SIZES]
    rows = [(name, *(duration(median(figures[name])) for figures in found)) for name in found[0]]
    return table((f"one call, {framework}", *(f"{size} ranks" for size in SIZES)), rows)


def barriers(world: World) -> None:
    for _ in range(BARRIERS):
        world.barrier()


def growth(sizes: tuple[int, ...]) -> str:
    """A barrier of simulated ranks, flat and along trees: operations on the store, of all and of the busiest rank."""
    rows = []
    for size in sizes:
        fanouts = dict.fromkeys([size, DEFAULT_FANOUT, 16, 4])
        for fanout in (fanout for fanout in fanouts if fanout <= size):
            begin = time.monotonic()
            outcome = SimulatedWorld(size, fanout=fanout).run(barriers)
            outcome.values()
            took = time.monotonic() - begin
            name = "flat" if fanout >= size else f"tree, fanout {fanout}"
            each = f"{outcome.operations.total() / size / BARRIERS:.2f}"
            rows.append(
                (
                    *(f"{size:,}", name, each, f"{outcome.busiest // BARRIERS:,}"),
                    *(duration(outcome.seconds / BARRIERS), duration(took / BARRIERS)),
                )
            )
    headers = (
        "ranks",
        "barrier",
        "operations per rank",
        "of the busiest rank",
        "simulated time",
        "real time to simulate",
    )
    return table(headers, rows)


def tables(*, quick: bool) -> str:
    """Return the tables."""
    rounds, calls = (3, 5) if quick else (8, 10)
    parts = [meetings(framework, rounds, calls) for framework in ("jax", "torch")]
    return "\n\n".join([*parts, growth(SIMULATED[:3] if quick else SIMULATED)])
