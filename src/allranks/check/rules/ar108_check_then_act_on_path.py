"""AR108: every rank makes the same directory, and only one can."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.queries.effects import is_there, named, tested, ungated
from allranks.check.rule import ProgramRule
from allranks.findings import Finding

_WITHOUT_TEST = "One process makes the directory, and all others raise FileExistsError."


class CheckThenActOnPath(ProgramRule):
    """
    ## What it does
    Finds directories that every rank makes without `exist_ok=True`, with or without a test `if not
    os.path.exists(...)`.

    ## Why is this bad
    Between the test and the call another process makes the directory. Without a test, only the first process succeeds.

    ## What happens with N processes
    One process succeeds, the others may raise `FileExistsError`: rarely with two processes, nearly always with a
    thousand, and always without a test.

    ## Known problems
    A program that Lightning's Trainer starts makes its folders in one process before it fits; that is not reported.

    ## Use instead
    `os.makedirs(path, exist_ok=True)`, `path.mkdir(parents=True, exist_ok=True)`.
    """

    code, name, severity, row = "AR108", "check-then-act-on-path", "warning", "gating"
    cluster = "One process makes the directory; another that tested at the same moment raises FileExistsError."
    advice = "Pass exist_ok=True, or make the directory on rank 0 and let the others wait at a barrier."
    bad = (
        """\
import os
import torch.distributed as dist

dist.init_process_group("nccl")
if not os.path.exists("out"):
    os.makedirs("out")  # <-- found
""",
    )
    good = (
        """\
import os
from pathlib import Path
import torch.distributed as dist

dist.init_process_group("nccl")
os.makedirs("out", exist_ok=True)
Path("out").mkdir(exist_ok=True)
if dist.get_rank() == 0 and not os.path.exists("logs"):
    os.makedirs("logs")
""",
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for root, reach in ungated(program.analysis, "mkdir"):
            if is_there(root, reach):
                continue
            cluster = None if tested(reach) else _WITHOUT_TEST
            message = f"every rank makes {named(reach)}, and only one can"
            yield self.effect(program, root, reach, message, cluster=cluster)
