"""AR206: each process goes round a loop with a collective as often as it has work."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Program, short
from allranks.check.rule import ProgramRule
from allranks.findings import Finding


class CollectiveInUnevenLoop(ProgramRule):
    """
    ## What it does
    Finds a collective inside a loop over what only this process has: its part of a list (`files[rank::world]`), a
    listing, a time limit.

    ## Why is this bad
    All processes must call it equally often. Parts of a list differ in length by one whenever the length does not
    divide. Workers of a loader fetch ahead, each at its own pace.

    ## What happens with N processes
    The rank with one item more waits for the others, or its call matches their next collective.

    ## Known problems
    A list whose length divides by the number of processes, for a reason that the code does not show, is reported, too.

    ## Use instead
    Gather once after the loop, pad the parts to equal length, or agree on the number of steps first
    (`all_reduce(..., op=MIN)`).
    """

    code, name, severity, row = "AR206", "collective-in-uneven-loop", "warning", "collectives"
    default = False
    cluster = "The rank with more items calls it once more than the others and waits for them."
    advice = "Call it after the loop, or make the number of rounds equal on all ranks."
    bad = (
        """\
import torch.distributed as dist

def convert(files):
    rank, world = dist.get_rank(), dist.get_world_size()
    for file in files[rank::world]:
        print(file)
        dist.barrier()  # <-- found
""",
    )
    good = (
        """\
import torch.distributed as dist

def convert(files, loader):
    rank, world = dist.get_rank(), dist.get_world_size()
    for file in files[rank::world]:
        print(file)
    dist.barrier()
""",
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for root, parted in program.divergences("rounds"):
            message = f"{short(parted.call.name)} is in a loop that each process runs as often as it has work"
            yield self.divergence(program, root, parted, message)
