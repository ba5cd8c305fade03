"""Loaders of samples that were dealt out by rank before: no sampler has to."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TRAIN = """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset
{more}

def part_of(rows, rank, world):
    n = len(rows) // world
    return Subset(rows, range(rank * n, (rank + 1) * n))


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    model, rows = DDP(make_model()), read()
    n = len(rows) // world
    order = torch.randperm(n * world, generator=torch.Generator().manual_seed(0)).tolist()
    part = {part}
    for batch in DataLoader(part, 32, shuffle=True, drop_last=True):
        model(batch).backward()


main()
"""
MINE = {
    "a stretch of numbers": "Subset(rows, range(rank * n, (rank + 1) * n))",
    "a list of them": "Subset(rows, indices=list(range(rank * n, (rank + 1) * n)))",
    "every N-th of an order": "Subset(rows, order[rank::world])",
    "a function that is told the rank": "part_of(rows, rank, world)",
}
# The second looks through the program: the file itself speaks of samplers.
MORE = ("", "from torch.utils.data import DistributedSampler\n")


def _found(part: str, more: str) -> list[str]:
    source = TRAIN.format(part=part, more=more).encode()
    return [f.code for f in check({"train.py": source}, Settings(select=("AR301",))).findings]


@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("part", MINE.values(), ids=MINE)
def test_samples_whose_numbers_come_from_the_rank_are_the_part_of_one_process(part: str, more: str) -> None:
    assert _found(part, more) == []
