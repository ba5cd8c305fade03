"""What lockstep costs a rank: in a call that was predicted, for a query, at the first run of a program."""

from __future__ import annotations

from bench.measure import PROGRAMS, allranks, median, must, run
from bench.page import duration, table

COMPILED, READ, ASKED = (
    "compilation of a step of 24 layers",
    "reading it for its first run",
    "a query that all ranks make",
)


def costs(framework: str, ranks: int, rounds: int) -> list[tuple[str, ...]]:
    """Rows of the medians over jobs of what rank 0 found."""
    program = PROGRAMS / "lockstep_costs.py"
    jobs = [must(run(allranks(ranks, program, framework))).told[0] for _ in range(rounds)]
    found = {name: median(float(job[name]) for job in jobs) for name in jobs[0]}
    rows = [
        (framework, name, f"{figure:.0f}" if name.startswith("queries") else duration(figure))
        for name, figure in found.items()
    ]
    if COMPILED in found:
        first = found[READ] + found[ASKED]
        rows.append((framework, "its first run costs: reading and a query, if all arrive at once", duration(first)))
        rows.append((framework, "the same, of its compilation", f"{100 * first / found[COMPILED]:.1f} %"))
    return rows


def tables(*, quick: bool) -> str:
    """Return the table."""
    ranks = 2 if quick else 4
    rows = [row for framework in ("jax", "torch") for row in costs(framework, ranks, 1 if quick else 3)]
    return table(("", f"on rank 0 of {ranks}", "median"), rows)
