"""One process: durable saves, restores, what async saves block, memory, the cost of digests, many small leaves."""

from __future__ import annotations

import math

from bench.checkpoint_runs import (
    ASYNC,
    ASYNC_JAX,
    BLOCKING,
    DCP_ASYNC,
    DCP_SAVE,
    DCP_THREADS,
    NO_DIGESTS,
    ORBAX,
    ORBAX_DEFAULT,
    ORBAX_PLAIN,
    ORBAXES,
    SAFETENSORS_NUMPY,
    SAFETENSORS_TORCH,
    TORCH_SAVE,
    Results,
    alone,
    best,
    peers,
    tried,
)
from bench.runs import Goal, Part, Runs, Told, jobs, megabytes, seconds, tabulated, x

LARGE = (
    *(BLOCKING, NO_DIGESTS, ASYNC, ASYNC_JAX, DCP_SAVE, DCP_THREADS, DCP_ASYNC),
    *(TORCH_SAVE, SAFETENSORS_TORCH, SAFETENSORS_NUMPY, ORBAX_DEFAULT, *ORBAXES),
)
SMALL = (BLOCKING, ASYNC, DCP_SAVE, DCP_THREADS, TORCH_SAVE, SAFETENSORS_NUMPY, ORBAX_PLAIN)


def first(told: Told) -> float:
    return float(told[0]["durable"][0])


def durable(told: Told) -> float:
    """The second save: what is allocated once is there."""
    return float(told[0]["durable"][1])


def blocking(told: Told) -> float:
    return float(told[0]["blocking"][1])


def of_raw(told: Told) -> float:
    return durable(told) / float(told[0]["raw"][1])


def of_copy(told: Told) -> float:
    """What the save blocked, over a copy of the same bytes by one thread or two, whichever is faster."""
    copies = told[0]["copy 1"] + told[0]["copy 2"]
    return blocking(told) / float(min(copies)) if copies else math.nan


def cold(told: Told) -> float:
    return float(told[0]["restores"]["cold"])


def of_raw_cold(told: Told) -> float:
    return cold(told) / float(told[0]["raw_cold"])


def warm(told: Told) -> float:
    return float(told[0]["restores"]["warm"])


def save_memory(told: Told) -> float:
    return float(told[0]["memory"]["save"])


def memory_of_state(told: Told) -> float:
    return save_memory(told) / float(told[0]["nbytes"])


def restore_memory(told: Told) -> float:
    return float(told[0]["memory"]["restore cold"])


def _cells(runs: Runs) -> tuple[str, ...]:
    saves = (seconds(runs.median(first)), seconds(runs.median(durable)), x(runs.median(of_raw)))
    blocked = (seconds(runs.median(blocking)), x(runs.median(of_copy)))
    restores = (seconds(runs.median(cold)), x(runs.median(of_raw_cold)), seconds(runs.median(warm)))
    memory = (megabytes(runs.median(save_memory)), megabytes(runs.median(restore_memory)))
    return (*saves, *blocked, *restores, *memory)


def _table(results: Results, what: str) -> str:
    headers = (
        *(what, "durable: first save", "then", "of raw write", "blocked", "of a copy"),
        *("restore: cold", "of raw read", "warm", "memory: save", "restore"),
    )
    return tabulated(headers, results, _cells)


def _raw_line(results: Results) -> str:
    every = Runs(tuple(told for runs in results.values() for told in runs.told), ())
    size = every.median(lambda told: told[0]["nbytes"])
    write = every.median(lambda told: told[0]["raw"][1])
    read, again = (every.median(lambda told, name=name: told[0][name]) for name in ("raw_cold", "raw_warm"))
    return (
        f"Raw, {size / 1e6:,.0f} MB: durable write {seconds(write)} ({size / write / 1e9:.1f} GB/s), "
        f"cold read {seconds(read)} ({size / read / 1e9:.1f} GB/s), warm read {seconds(again)}."
    )


def _memory_goal(what: str, goal: str, limit: float, found: float, others: str) -> Goal:
    return Goal(f"extra memory, {what}", goal, megabytes(found), others, found, limit)


def _goals(results: Results) -> tuple[Goal, ...]:
    ours, behind, behind_jax = results[BLOCKING], results[ASYNC], results[ASYNC_JAX]
    saved, read, again = ours.median(of_raw), ours.median(of_raw_cold), ours.median(warm)
    faster = results[DCP_SAVE].median(warm) / again
    held = behind.median(memory_of_state)
    jax_blocked = behind_jax.median(of_copy)
    restored = peers(results, restore_memory, megabytes)
    return (
        Goal("durable save, one process", "<= 1.15 x raw write", x(saved), peers(results, of_raw, x), saved, 1.15),
        Goal(
            *("blocking part of an async save", "<= 1.3 x a warm copy", x(behind.median(of_copy))),
            *(peers(results, of_copy, x), behind.median(of_copy), 1.3),
        ),
        Goal(
            *("the same, JAX arrays on CPU", "nothing (<= 0.1 x a copy)", x(jax_blocked)),
            *(f"Orbax {x(best(results, [ORBAX], of_copy))}", jax_blocked, 0.1),
        ),
        _memory_goal(
            "blocking save", "<= 64 MB", 64e6, ours.median(save_memory), peers(results, save_memory, megabytes)
        ),
        Goal(
            *("extra memory, async save", "1.0 x the state", x(held)),
            *(peers({DCP_ASYNC: results[DCP_ASYNC]}, memory_of_state, x), held, 1.05),
        ),
        _memory_goal("restore in place", "<= 64 MB", 64e6, ours.median(restore_memory), restored),
        Goal("restore, verified, cold", "<= 1.3 x raw read", x(read), peers(results, of_raw_cold, x), read, 1.3),
        Goal(
            *("restore, verified, warm", ">= 3 x faster than DCP in place", f"{faster:.1f} x faster"),
            *(peers(results, warm, seconds), 3 / faster, 1),
        ),
        *_digest_goals(ours, results[NO_DIGESTS]),
    )


def _digest_goals(ours: Runs, without: Runs) -> tuple[Goal, ...]:
    """Digests: the ratio of medians, each over the raw limit beside it."""
    figures = {
        "save": of_raw,
        "cold restore": of_raw_cold,
        "warm restore": lambda told: warm(told) / told[0]["raw_warm"],
    }
    made = []
    for what, figure in figures.items():
        cost = ours.median(figure) / without.median(figure) - 1
        made.append(Goal(f"digests, {what}", "<= 10 %", f"{100 * cost:+.0f} %", "none verifies", cost, 0.1))
    return tuple(made)


def large(*, quick: bool, rounds: int) -> Part:
    """1.24 GB in 150 leaves."""
    results = jobs(tried(LARGE, quick=quick), alone("ckpt_one.py", "gpt2-tenth" if quick else "gpt2"), rounds)
    return Part(f"{_table(results, 'one process, 150 leaves')}\n\n{_raw_line(results)}", _goals(results))


def small(*, quick: bool, rounds: int) -> Part:
    """5,000 leaves of 256 B to 64 KB."""
    results = jobs(tried(SMALL, quick=quick), alone("ckpt_one.py", "small-tenth" if quick else "small"), rounds)
    saved = results[BLOCKING].median(of_raw)
    goal = Goal("5,000 small leaves", "<= 3 x raw write", x(saved), peers(results, of_raw, x), saved, 3)
    what = f"one process, {500 if quick else 5000:,} small leaves"
    return Part(f"{_table(results, what)}\n\n{_raw_line(results)}", (goal,))
