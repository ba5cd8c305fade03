"""Ranks that part: what happens without us, with torch's own debugging, and in lockstep; and what lockstep costs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from bench.measure import PROGRAMS, ROOT, Ran, allranks, in_turns, median, must, plain, run
from bench.page import duration, table

CASES = ROOT / "tests" / "gate" / "programs"
# What the last rank does otherwise.
JAX = {
    "first_shape": "another shape, first call",
    "first_dtype": "another dtype, first call",
    "first_order": "max and sum swapped, first call",
    "order": "max and sum swapped, known calls",
    "extra": "a call more",
    "branch": "a branch not taken",
    "absent": "does not come",
    "early": "stops early",
}
TORCH = {
    "shape": "another shape",
    "dtype": "another dtype",
    "op": "all_gather for all_reduce",
    "reduce_op": "max for sum",
    "order": "max and sum swapped, known calls",
    "extra": "a call more",
    "ddp": "no backward of DDP",
    "absent": "does not come",
    "early": "stops early",
}
# A job is given up after this time, of which a few seconds are its start.
PATIENCE = 20.0
_RESULT = re.compile(r"^RESULT (\{.*\})$", re.MULTILINE)
_ABORT = re.compile(r"terminate called|Fatal Python error|Aborted|Check failed")


def ways(framework: str, case: str, ranks: int) -> dict[str, Callable[[], Ran]]:
    script = CASES / f"lockstep_{framework}.py"
    detail = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    found = {
        "without": lambda: run(plain(ranks, script, case, "without"), limit=PATIENCE),
        "in lockstep": lambda: run(plain(ranks, script, case), limit=PATIENCE),
    }
    if framework == "torch":
        found["DETAIL"] = lambda: run(plain(ranks, script, case, "without"), limit=PATIENCE, env=detail)
    return found


def outcome(ran: Ran, case: str, ranks: int) -> str:
    """What became of a job whose ranks did not do the same."""
    said = [json.loads(text)[case] for text in _RESULT.findall(ran.output)]
    errors = [one["error"].partition(":")[0] for one in said if "error" in one]
    ours = [name for name in errors if name in ("Mismatch", "BarrierTimeout")]
    if ours:
        seconds = max(one["seconds"] for one in said if "error" in one)
        return f"{ours[0]}, {duration(seconds)}"
    if _ABORT.search(ran.output):
        return "abort"
    if ran.code is None:
        return f"hangs (> {PATIENCE:.0f} s)"
    if errors:
        return f"{errors[0]} on {len(errors)} of {ranks}"
    return "**wrong, exit 0**" if ran.code == 0 else f"exit {ran.code}"


def matrix(framework: str, cases: Mapping[str, str], sizes: tuple[int, ...]) -> str:
    names = ["without", *(["DETAIL"] if framework == "torch" else []), "in lockstep"]
    rows = []
    for case, words in cases.items():
        cells = []
        for ranks in sizes:
            results = in_turns(ways(framework, case, ranks), 1)
            cells += [outcome(results[name][0], case, ranks) for name in names]
        rows.append((words, *cells))
    headers = [f"{framework}, {ranks} ranks: {name}" for ranks in sizes for name in names]
    return table(("one rank's", *headers), rows)


def costs(framework: str, ranks: int, rounds: int) -> list[tuple[str, ...]]:
    """Rows of the medians over jobs of what rank 0 found."""
    program = PROGRAMS / "lockstep_costs.py"
    jobs = [must(run(allranks(ranks, program, framework))).told[0] for _ in range(rounds)]
    rows = []
    for name in jobs[0]:
        figure = median(float(job[name]) for job in jobs)
        rows.append((framework, name, f"{figure:.0f}" if name.startswith("questions") else duration(figure)))
    return rows


def tables(*, quick: bool) -> str:
    """Return the tables."""
    sizes = (2,) if quick else (2, 4)
    some = dict(list(JAX.items())[2:4]) if quick else JAX
    parts = [matrix("jax", some, sizes), matrix("torch", {"order": TORCH["order"]} if quick else TORCH, sizes)]
    found = [row for framework in ("jax", "torch") for row in costs(framework, sizes[-1], 1 if quick else 3)]
    parts.append(table(("", f"on rank 0 of {sizes[-1]}", "median"), found))
    return "\n\n".join(parts)
