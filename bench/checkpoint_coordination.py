"""What it costs to plan and commit a save of very many ranks, simulated in one process."""

from __future__ import annotations

from bench.checkpoint_runs import Part

RANKS = 10_000


def tables(*, quick: bool, rounds: int) -> Part:
    """UNFINISHED: plan and commit seconds of one core (goal: < 5 s), and memory (goal: < 200 MB), at RANKS ranks."""
    raise NotImplementedError("the coordination of simulated ranks is not measured yet")
