"""AR206: each process goes round a loop with a collective as often as it has work."""

from __future__ import annotations

import re
from collections.abc import Iterator

from allranks.check.program import Event, Program
from allranks.check.rule import Example, ProgramRule
from allranks.findings import Finding

_PER_ITEM = re.compile(
    r"\.\w*(?:[Dd]ataset|[Ss]ampler)(?!\w*(?:Iterator|Loader))\w*\.(__getitem__|__next__|__iter__)$"
    r"|[Cc]ollat\w*(?:\.__call__)?$"
)


class CollectiveInUnevenLoop(ProgramRule):
    """
    ## What it does
    Finds a collective inside a loop over what this process alone has: its part of a list (`files[rank::world]`), a
    listing, a time limit; and inside a data set, sampler or collate function, which run once for each item or batch.

    ## Why is this bad
    All processes must call it equally often. Parts of a list differ in length by one whenever the length does not
    divide; workers of a loader fetch ahead, each at its own pace.

    ## What happens with N processes
    The rank with one item more waits for the others, or meets their next collective.

    ## Known problems
    A list whose length divides by the number of processes, for a reason that the code does not show.

    ## Use instead
    Gather once after the loop, pad the parts to equal length, or agree on the number of steps first
    (`all_reduce(..., op=MIN)`).

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR206", "collective-in-uneven-loop", "warning", "collectives"
    default = False
    cluster = "The rank with more to do calls it once more than the others and waits for them."
    advice = "Call it after the loop, or make the number of rounds the same on all ranks."
    bad = (
        Example(
            {
                "train.py": """\
import torch.distributed as dist

def convert(files):
    rank, world = dist.get_rank(), dist.get_world_size()
    for file in files[rank::world]:
        print(file)
        dist.barrier()
""",
            },
            at=(7,),
        ),
        Example(
            {
                "data.py": """\
import torch.distributed as dist
from torch.utils.data import Sampler

class BucketSampler(Sampler):
    def __iter__(self):
        for bucket in self.buckets:
            dist.barrier()
            yield bucket
""",
            },
            at=(7,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import torch.distributed as dist

def convert(files, loader):
    rank, world = dist.get_rank(), dist.get_world_size()
    for file in files[rank::world]:
        print(file)
    dist.barrier()
    for batch in loader:
        dist.all_reduce(batch)
    for turn in range(world):
        if turn == rank:
            print(files)
        dist.barrier()
""",
            },
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for parting in program.divergences():
            if parting.cause == "loop":
                message = f"{parting.collective} stands in a loop that each process goes round as often as it has work"
                yield self.found(parting, message)
        for event in program.collectives():
            if event.active and _per_item(event):
                yield self.found(
                    event, f"{event.name} runs in a data set or sampler, once for each item of this process"
                )


def _per_item(event: Event) -> bool:
    found = _PER_ITEM.search(event.symbol)
    return found is not None and (found[1] != "__iter__" or event.looped)
