"""What it costs to be rehearsed: a step and the start beside ``allranks run``, and all runs of a rehearsal."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace

from bench.measure import PROGRAMS, Ran, in_turns, median, must, read_told, run
from bench.page import duration, table, times

PROGRAM = PROGRAMS / "rehearsed.py"


def job(steps: int, *options: object) -> Callable[[], Ran]:
    """Return a run of the program; its figures go where a rehearsal does not put files back."""

    def once() -> Ran:
        with tempfile.TemporaryDirectory(prefix="bench-", dir="/dev/shm") as folder:
            command = [sys.executable, "-m", "allranks", *options, PROGRAM, steps]
            ran = must(run(command, env={"BENCH_OUT": folder}))
            return replace(ran, told=read_told(folder))

    return once


def step(ran: Ran) -> float:
    return statistics.mean(float(one["step"]) for one in ran.told)


def first(ran: Ran) -> float:
    return max(float(one["first"]) for one in ran.told)


def tables(*, quick: bool) -> str:
    """Return the tables."""
    rounds, steps = (1, 20) if quick else (7, 100)
    ways = {
        "allranks run": job(steps, "run", "-n", 2),
        "rehearse": job(steps, "rehearse", "-n", 2, "--only", "quiet", "--steps", 0),
    }
    runs = in_turns(ways, rounds)
    rows = [_row(name, runs[name], runs["allranks run"]) for name in ways]
    whole = in_turns({"all": job(steps, "rehearse", "-n", 2)}, 1 if quick else 3)["all"]
    return "\n\n".join(
        [
            table(("2 ranks of torch", "a step", "beside `run`", "first step after", "job"), rows),
            f"All runs of a rehearsal of it, 20 steps each: {duration(median(one.seconds for one in whole))}.",
        ]
    )


def _row(name: str, runs: Sequence[Ran], base: Sequence[Ran]) -> tuple[str, ...]:
    steps = median(map(step, runs))
    return (
        f"`{name}`",
        duration(steps),
        times(steps, median(map(step, base))),
        duration(median(map(first, runs))),
        duration(median(one.seconds for one in runs)),
    )
