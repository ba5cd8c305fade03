"""AR206: each process goes round a loop with a collective as often as it has work."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.program import Event, Program, short
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.sources.source import File
from allranks.check.tree.own_keys import met_by_key
from allranks.findings import Finding

_PER_ITEM = re.compile(
    r"\.\w*(?:[Dd]ataset|[Ss]ampler)(?!\w*(?:Iterator|Loader))\w*\.(__getitem__|__next__|__iter__)$"
    r"|[Cc]ollat\w*(?:\.__call__)?$"
)


class CollectiveInUnevenLoop(LocalRule, ProgramRule):
    """
    ## What it does
    Finds a collective inside a loop over what only this process has. That is its part of a list (`files[rank::world]`),
    a listing, a time limit, or a dictionary that gets its keys from this process' data. Also one inside a data set,
    sampler or collate function, which runs once for each item or batch.

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

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR206", "collective-in-uneven-loop", "warning", "collectives"
    default = False
    cluster = "The rank with more items calls it once more than the others and waits for them."
    advice = "Call it after the loop, or make the number of rounds equal on all ranks."
    words = ("all_reduce", "gather", "reduce", "average_")
    nodes = (ast.For,)
    bad = (
        Example(
            {
                "errors.py": """\
import torch.distributed as dist

class Errors:
    def update(self, targets):
        for key, target in targets.items():
            if key not in self.sums:
                self.sums[key] = 0.0
            self.sums[key] += target.sum()

    def finish(self):
        for key in sorted(self.sums.keys()):
            dist.all_reduce(self.sums[key])
""",
            },
            at=(11,),
        ),
        Example(
            {
                "sums.py": """\
from collections import defaultdict
from project.processes import average_main

class Sums:
    def __init__(self):
        self.sums, self.weights = defaultdict(float), defaultdict(float)

    def update(self, rows):
        for key, (value, weight) in rows.items():
            self.sums[key] += value * weight
            self.weights[key] += weight

    def averages(self):
        here = {key: self.sums[key] / self.weights[key] for key in self.sums.keys()}
        for key, value in here.items():
            yield key, average_main(value)
""",
            },
            at=(15,),
        ),
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
                "meters.py": """\
import torch.distributed as dist

class Meters:
    def update(self, losses):
        for key, loss in losses.items():
            if key not in self.sums:
                self.sums[key] = 0.0
            self.sums[key] += loss

    def finish(self):
        for key in self.sums:
            dist.all_reduce(self.sums[key])
""",
            },
        ),
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

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        assert isinstance(node, ast.For)
        if not file.is_test and (keyed := met_by_key(node, file)) is not None:
            yield self.local(
                file,
                node,
                f"a collective runs once for each key of {ast.unparse(keyed)}, and each process has its own keys",
            )

    def check(self, program: Program) -> Iterator[Finding]:
        for parting in program.divergences():
            if parting.cause == "loop":
                message = f"{parting.named} is in a loop that each process runs as often as it has work"
                yield self.found(parting, message)
        for event in program.collectives():
            if event.active and _per_item(event):
                yield self.found(
                    event,
                    f"{short(event.name)} runs inside a data set or sampler, once for each item of this process",
                )


def _per_item(event: Event) -> bool:
    found = _PER_ITEM.search(event.symbol)
    return found is not None and (found[1] != "__iter__" or event.looped)
