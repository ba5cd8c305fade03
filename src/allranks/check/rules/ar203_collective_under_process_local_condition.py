"""AR203: each process decides alone whether to call a collective."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Program, condition, reads_alike, short
from allranks.check.rule import ProgramRule
from allranks.findings import Finding


class CollectiveUnderProcessLocalCondition(ProgramRule):
    """
    ## What it does
    Finds a collective that depends on what one process finds by itself: whether a file exists, a clock, a random
    number, the loss or the rows of its batch.

    ## Why is this bad
    Processes may find different things: a file does not exist yet on another host, a clock is late.

    ## What happens with N processes
    Some processes call the collective and others do not. They wait until a timeout, or are in different collectives.

    ## Known problems
    On an idle shared file system all processes find the same. Confidence is low if files are only read, and neither
    side changes any.

    ## Use instead
    Decide on rank 0 and broadcast the decision.
    """

    code, name, severity, row = "AR203", "collective-under-process-local-condition", "error", "collectives"
    cluster = "Processes that find different things call different collectives: a hang, or wrong numbers."
    advice = "Decide on rank 0 and broadcast the decision before any rank acts on it."
    bad = (
        """\
import os
import time
import torch.distributed as dist

dist.init_process_group("nccl")
start = time.time()
for step in range(1000):
    if time.time() - start > 60:
        dist.barrier()  # <-- found
        start = time.time()
""",
    )
    good = (
        """\
import os
import torch.distributed as dist

dist.init_process_group("nccl")
if os.path.exists("ready"):
    print("ready")
dist.barrier()
""",
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for root, parted in program.divergences("process"):
            if not parted.leaves and parted.call.entry.op != "stop":
                message = f"{short(parted.call.name)} depends on what only this process finds: {condition(parted)}"
                yield self.divergence(program, root, parted, message, low=reads_alike(parted))
