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
ALL = {
    "the first ones": "Subset(rows, range(n))",
    "an order": "Subset(rows, order)",
    "a function that is told nothing": "part_of(rows, 0, 2)",
    "the whole on the device of a process": "Subset(rows.to(rank), range(n))",
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


@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("part", ALL.values(), ids=ALL)
def test_samples_whose_numbers_are_alike_are_read_by_every_process(part: str, more: str) -> None:
    assert _found(part, more) == ["AR301"]


TEST = """
from torch.utils.data import DataLoader
import torch.distributed as dist
from torch.utils.data import DistributedSampler


def loader(test_set):
    sampler = DistributedSampler(test_set, shuffle=False) if dist.is_initialized() else None
    return DataLoader(test_set, 32, sampler=sampler)
"""
SCORES = """
from data import loader


def evaluate(model, test_loader):
    total = 0
    for x, y in test_loader:
        total += model(x, y).item()
    return total / len(test_loader)


if __name__ == "__main__":
    {joins}
    print(evaluate(load(), loader(read())))
"""


@pytest.mark.parametrize(("joins", "expected"), [("read()", []), ("setup_distributed()", ["AR310"])])
def test_a_program_that_joins_nobody_has_all_of_the_data(joins: str, expected: list[str]) -> None:
    """Another program of the project joins its processes: what both of them use is no sign that this one does."""
    train = "import torch.distributed as dist\nfrom data import loader\n\ndist.init_process_group('nccl')\nloader(1)\n"
    sources = {"data.py": TEST, "evaluate.py": SCORES.format(joins=joins), "train.py": train}
    found = check({p: text.encode() for p, text in sources.items()}, Settings(select=("AR310",))).findings
    assert [finding.code for finding in found] == expected
