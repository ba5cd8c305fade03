"""Tests of four ranks: 50 by our pytest plugin, and some by what people have without it: fresh processes for each."""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench.measure import PROGRAMS, Ran, in_turns, median, must, plain, run
from bench.page import duration, table


def command(tests: int, *words: object) -> Callable[[], Ran]:
    """A program that runs so many tests (programs/*_tests.py)."""
    environ = {"BENCH_TESTS": str(tests), "JAX_NUM_CPU_DEVICES": "2", "OMP_NUM_THREADS": "1"}
    return lambda: must(run(words, env=environ))


def tables(*, quick: bool) -> str:
    """Return the table."""
    many, few, rounds = (10, 1, 1) if quick else (50, 5, 1)
    pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    ways = {
        "JAX, 4 ranks x 2 devices: our plugin": (many, pytest, "jax_tests.py"),
        "JAX, 4 ranks x 2 devices: fresh processes": (1, plain(4), "first_jax.py"),
        "torch, 4 ranks: our plugin": (many, pytest, "torch_tests.py"),
        "torch, 4 ranks: mp.spawn": (few, (sys.executable,), "torch_peer_tests.py"),
    }
    results = in_turns(
        {name: command(tests, *start, PROGRAMS / file) for name, (tests, start, file) in ways.items()}, rounds
    )
    rows = []
    for name, (tests, *_) in ways.items():
        seconds = median(ran.seconds for ran in results[name])
        rows.append((name, tests, duration(seconds), duration(seconds / tests), duration(50 * seconds / tests)))
    return table(("", "tests", "all", "a test", "50 tests, at that rate"), rows)
