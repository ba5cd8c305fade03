"""What it costs rank 0 to plan and commit a save of very many ranks, in one process."""

from __future__ import annotations

import sys

from bench.measure import PROGRAMS, median, must, run
from bench.page import duration, table
from bench.runs import Goal, Part

RANKS = 10_000
SECONDS, BYTES = 5.0, 200e6


def tables(*, quick: bool, rounds: int) -> Part:
    """Plan and commit in seconds of one core, and memory."""
    sizes = (1_000,) if quick else (1_000, RANKS)
    rows, goals = [], []
    for ranks in sizes:
        jobs = [must(run([sys.executable, PROGRAMS / "ckpt_coordination.py", ranks])).told[0] for _ in range(rounds)]
        plan, commit, memory, manifest = (
            median(job[key] for job in jobs) for key in ("plan", "commit", "memory", "manifest")
        )
        sizes_told = (f"{memory / 1e6:.0f} MB", f"{manifest / 1e6:.1f} MB")
        rows.append((f"{ranks:,}", duration(plan), duration(commit), *sizes_told))
        if ranks == RANKS:
            told = f"{duration(plan + commit)}, {memory / 1e6:.0f} MB"
            worst = max((plan + commit) / SECONDS, memory / BYTES)
            goals.append(Goal("10,000 ranks: plan and commit", "< 5 s, < 200 MB", told, "DCP ~6 s, 2.5 GB", worst, 1))
    return Part(table(("ranks", "plan", "commit", "memory", "manifest"), rows), tuple(goals))
