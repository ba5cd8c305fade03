"""AR203: each process decides alone whether to call a collective."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import Example, ProgramRule
from allranks.findings import Finding


class CollectiveUnderProcessLocalCondition(ProgramRule):
    """
    ## What it does
    Finds a collective that hangs on what one process finds by itself: whether a file exists, what a directory lists, a
    clock, a random number.

    ## Why is this bad
    Processes need not find the same: a file is not there yet on another host, a clock is a little late.

    ## What happens with N processes
    Some processes call the collective and others do not: they wait until a timeout, or meet in different collectives.

    ## Known problems
    On a shared file system that is quiet, all processes find the same; the finding then warns of what can change.

    ## Use instead
    Decide on rank 0 and broadcast the decision.

    ## Fix safety
    There is no automatic fix: which side is right, only the author knows.
    """

    code, name, severity, row = "AR203", "collective-under-process-local-condition", "error", "collectives"
    cluster = "Processes that find different things call different collectives: a hang, or wrong numbers."
    advice = "Decide on rank 0 and broadcast the decision before anybody acts on it."
    bad = (
        Example(
            {
                "train.py": """\
import os
import torch.distributed as dist

dist.init_process_group("nccl")
if os.path.exists("ready"):
    dist.barrier()
""",
            },
            at=(6,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import os
import torch.distributed as dist

dist.init_process_group("nccl")
if os.path.exists("ready"):
    print("ready")
dist.barrier()
""",
            },
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for parting in program.divergences():
            if parting.cause == "process":
                yield self.found(
                    parting,
                    f"{parting.collective} hangs on what this process alone finds: {parting.condition}",
                    notes=parting.sides(),
                )
