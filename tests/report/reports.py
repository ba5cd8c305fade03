"""A report to be shown, with everything that a form may stumble over."""

from __future__ import annotations

from allranks.findings import Edit, Finding, Fix, Note, Place, Row
from allranks.report.base import Cell, Report, RuleNote, Source

TRAIN = """import jax
from utils import save


def train(model, rank):
    for step in range(10):
        if rank == 0:
            save(model)
    print("</script><b>50%|*名前*")
"""
GUARD = Place("train.py", 7, 9, 7, 21)
CALL = Place("train.py", 8, 13, 8, 24)
HANG = Finding(
    code="AR201",
    name="collective-under-rank-guard",
    severity="error",
    message="`all_gather` is reached by rank 0 only",
    place=CALL,
    symbol="train.train",
    cluster="Rank 0 waits in all_gather; the others go on. The job hangs.",
    advice="Move `save(model)` out of the `if`.",
    notes=(
        Note("only rank 0 comes here", GUARD),
        Note("calls all_gather", Place("utils.py", 2, 5, 2, 18)),
        Note("the others: no collective"),
    ),
)
WRITE = Finding(
    code="AR102",
    name="ungated-file-write",
    severity="warning",
    message="Every rank writes a <log>, 100%:\x1b[31m, here",
    place=Place("train.py", 9, 5, 9, 33),
    symbol="train.train",
    cluster="",
    advice="Gate it.",
    fix=Fix("Gate it", (Edit(Place("train.py", 9, 5, 9, 5), "if rank == 0: "),), safe=True),
)
CELL = Finding("AR102", "ungated-file-write", "info", "In a cell", Place("a b.ipynb", 4, 1, 4, 4), "", "", "")
ROWS = (
    Row("initialisation", "ok", (Note("jax.distributed.initialize()", Place("train.py", 1, 1, 1, 11)),)),
    Row("collectives", "error", tuple(Note(f"rank {n} | alone", GUARD) for n in range(5))),
    Row("timeouts", "not seen"),
)
REPORT = Report(
    findings=(CELL, HANG, WRITE),
    rows=ROWS,
    files=3,
    lines=1200,
    version="0.1.0",
    project="<lm>",
    sources={
        "train.py": Source(tuple(TRAIN.splitlines())),
        "utils.py": Source(("def save(m):", "    all_gather(m)")),
        "a b.ipynb": Source(("import os", "x = 1", "y = 2", "f()"), (Cell(2, 1), Cell(5, 3))),
    },
    prints={HANG: "abc"},
    rules=(
        RuleNote("AR102", "ungated-file-write", "Finds writes."),
        RuleNote("AR201", "collective-under-rank-guard", "Finds collectives.", right=37, read=49),
    ),
    hidden=2,
    withheld=1,
    unsure=4,
)
EMPTY = Report((), (), 1, 10, "0.1.0")
