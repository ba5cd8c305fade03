"""What the gate costs: to open a section, to work in it, to be refused in it, and to meet before a collective.

Every figure but those of a first time is the best round of many: on a busy machine the best is what a call costs.
"""

from __future__ import annotations

from bench.measure import PROGRAMS, allranks, must, run
from bench.page import duration, table


def tables(*, quick: bool) -> str:
    """Return the table; it is quick in any case."""
    del quick
    figures = {
        framework: must(run(allranks(2, PROGRAMS / "gate_costs.py", framework))).told[0]
        for framework in ("jax", "torch")
    }
    rows = [(name, *(duration(found[name]) for found in figures.values())) for name in figures["jax"]]
    return table(("on rank 0 of 2", *figures), rows)
