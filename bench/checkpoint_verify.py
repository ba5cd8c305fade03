"""The command that reads a checkpoint again, beside raw reading."""

from __future__ import annotations

from bench.checkpoint_runs import BLOCKING, alone
from bench.runs import Goal, Part, Runs, Told, jobs, seconds, tabulated, x


def whole(told: Told) -> float:
    return float(told[0]["verify"])


def start(told: Told) -> float:
    return float(told[0]["start"])


def speed(told: Told) -> float:
    """Of raw reading, Python's start not counted."""
    return float(told[0]["raw"]) / max(whole(told) - start(told), 1e-9)


def tables(*, quick: bool, rounds: int) -> Part:
    """The table."""
    results = jobs([BLOCKING], alone("ckpt_verify.py", "gpt2-tenth" if quick else "gpt2"), rounds)

    def cells(runs: Runs) -> tuple[str, ...]:
        raw = runs.median(lambda told: float(told[0]["raw"]))
        return (*(seconds(figure) for figure in (runs.median(whole), runs.median(start), raw)), x(runs.median(speed)))

    headers = ("`allranks ckpt verify`, cold", "all of it", "its start", "raw read", "speed of raw reading")
    reached = results[BLOCKING].median(speed)
    goal = Goal("`ckpt verify`", ">= 0.8 x the speed of raw reading", x(reached), "none verifies", 0.8 / reached, 1)
    return Part(tabulated(headers, results, cells), (goal,))
