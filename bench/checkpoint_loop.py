"""The training time that an asynchronous save costs: what it blocks, and by how much it slows the loop."""

from __future__ import annotations

from bench.checkpoint_runs import (
    ASYNC,
    ASYNC_JAX,
    DCP,
    DCP_ASYNC,
    ORBAX,
    ORBAXES,
    OTHERS,
    SNAPSHOT,
    alone,
    best,
    peers,
    tried,
)
from bench.runs import Goal, Part, Runs, Told, jobs, seconds, tabulated

WAYS = (ASYNC, ASYNC_JAX, DCP_ASYNC, SNAPSHOT, *ORBAXES)


def figure(name: str, told: Told) -> float:
    return float(told[0][name])


def lost(told: Told) -> float:
    return figure("lost", told)


def slower(told: Told) -> float:
    """By how much of its idle time a step took longer during the save."""
    stretch = figure("behind", told)
    return (lost(told) - figure("blocking", told)) / max(stretch - (lost(told) - figure("blocking", told)), 1e-9)


def _cells(runs: Runs) -> tuple[str, ...]:
    blocking, behind, worst, idle = (
        seconds(runs.median(lambda told, name=name: figure(name, told)))
        for name in ("blocking", "behind", "worst", "idle_step")
    )
    return blocking, behind, f"{100 * runs.median(slower):+.0f} %", worst, idle, seconds(runs.median(lost))


def tables(*, quick: bool, rounds: int) -> Part:
    """The table."""
    results = jobs(tried(WAYS, quick=quick), alone("ckpt_loop.py", "gpt2-tenth" if quick else "gpt2"), rounds)
    headers = ("one async save", "blocked", "behind", "loop slower", "worst step", "idle step", "training time lost")
    ours, theirs = results[ASYNC].median(lost), peers(results, lost, seconds)
    of_best = ours / best(results, [ORBAX, OTHERS, DCP], lost)
    of_dcp = ours / best(results, [DCP], lost)
    jax = results[ASYNC_JAX].median(lost)
    of_orbax = jax / best(results, [ORBAX], lost)
    goals = (
        Goal(
            *("training time lost per async save", "<= 1/2 of the best peer, <= 1/5 of DCP"),
            f"{seconds(ours)}: {of_best:.2f} of the best, {of_dcp:.2f} of DCP",
            *(theirs, max(2 * of_best, 5 * of_dcp), 1),
        ),
        Goal(
            *("the same, JAX arrays", "<= 1/2 of Orbax's best setting", f"{seconds(jax)}: {of_orbax:.2f} of Orbax"),
            *(f"Orbax {seconds(best(results, [ORBAX], lost))}", 2 * of_orbax, 1),
        ),
    )
    return Part(tabulated(headers, results, _cells), goals)
