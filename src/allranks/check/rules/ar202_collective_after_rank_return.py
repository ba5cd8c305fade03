"""AR202: some ranks leave before a collective."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Program, computes, condition, short
from allranks.check.rule import ProgramRule
from allranks.findings import Finding


class CollectiveAfterRankReturn(ProgramRule):
    """
    ## What it does
    Finds an early `return` or `continue` that depends on the rank (a `break` is AR209), above a call that reaches a
    collective, in this function or in one that it calls. It also finds an end of the process that the others do not
    share: `sys.exit()`, `os._exit(0)`, `exit()`. An exception ends the job and is not reported.

    ## Why is this bad
    A collective waits for every process of its group. Those that have left never reach it.

    ## What happens with N processes
    Rank 0 waits in the collective until a timeout. The others continue, and match it with another collective.

    ## Known problems
    As for AR201.

    ## Use instead
    Call what all ranks must call first, then return on the ranks that have nothing to write.
    """

    code, name, severity, row = "AR202", "collective-after-rank-return", "error", "collectives"
    cluster = (
        "The ranks that stay wait for those that have left, or match their next collective and compute wrong numbers."
    )
    advice = "Move the collective above the return: every rank calls it, then those with nothing to write leave."
    bad = (
        """\
import torch.distributed as dist

def save(state):
    if dist.get_rank() != 0:
        return
    print(state)
    dist.barrier()  # <-- found

dist.init_process_group("nccl")
save({})
""",
    )
    good = (
        """\
import torch.distributed as dist

def save(state):
    dist.barrier()
    if dist.get_rank() != 0:
        return
    print(state)

dist.init_process_group("nccl")
save({})
""",
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for root, parted in program.divergences("return"):
            if not computes(parted):
                called = short(parted.call.name)
                message = f"{called} is not reached by every rank: some ranks leave at {condition(parted)}"
                yield self.divergence(program, root, parted, message)
