"""What it costs to compare the state of all ranks, beside a training step, the frameworks' ways and plain reading."""

from __future__ import annotations

import sys

from bench.measure import PROGRAMS, allranks, must, run
from bench.page import duration, table


def tables(*, quick: bool) -> str:
    """Both tables."""
    return f"{speeds(quick)}\n\n{costs(quick)}"


def speeds(quick: bool) -> str:
    """Bytes a second of one thread: the best round of several that take turns."""
    command = [sys.executable, PROGRAMS / "verify_speeds.py", 16 if quick else 256, 2 if quick else 7]
    found = must(run(command, env={"RANK": "0", "OMP_NUM_THREADS": "1"})).told[0]
    base = next(iter(found.values()))
    rows = [(way, f"{speed / 1e9:.2f} GB/s", f"{speed / base:.2f} x") for way, speed in found.items()]
    return table(("one process, one array", "speed", "of reading"), rows)


def costs(quick: bool) -> str:
    """Of one rank: medians, ranks begin together; and the part of 100 steps that one check takes."""
    sizes = (2,) if quick else (2, 4)
    program, times = PROGRAMS / "verify_costs.py", 3 if quick else 15
    found = {
        (framework, size): must(run(allranks(size, program, framework, times))).told[0]
        for framework in ("jax", "torch")
        for size in sizes
    }
    rows = [
        (name, *("-" if one[name] is None else duration(one[name]) for one in found.values()))
        for name in next(iter(found.values()))
    ]
    share = [one["verify(state)"] / (100 * one["a training step"]) for one in found.values()]
    rows.append(("verify(state, step, every=100), of the training", *(f"{100 * part:.2f}%" for part in share)))
    return table(("75 MB in 72 leaves, replicated", *(f"{name}, {size} ranks" for name, size in found)), rows)
