"""Every N-th number of a sample, kept by a process: the loader over those has a batch more on some ranks."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TRAIN = """import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Subset


class Part(Dataset):
    def __init__(self, rows, rank, world):
        self.rows = rows
        self.mine = {mine}

    def __len__(self):
        return len(self.mine)

    def __getitem__(self, index):
        return self.rows[self.mine[index]]


def main(model, rows):
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(model)
    part = {part}
    loader = DataLoader(part, 1, {loaded})
    for epoch in range(5):
        for batch in loader:
            model(batch).backward()
"""
PLAIN = {
    "mine": "list(range(rank, len(rows), world))",
    "part": "Part(rows, rank, world)",
    "loaded": "shuffle=True",
}
UNEVEN = {
    "in a data set": ({}, 9),
    "in a data set, by a test": ({"mine": "[i for i in range(len(rows)) if i % world == rank]"}, 9),
    "of a subset": ({"part": "Subset(rows, list(range(rank, len(rows), world)))"}, 22),
    "of a list": ({"part": "[rows[i] for i in range(len(rows)) if i % world == rank]"}, 22),
}
EVEN = {
    "cut to what all have": {"mine": "list(range(rank, len(rows) // world * world, world))"},
    "cut afterwards": {"mine": "list(range(rank, len(rows), world))[:len(rows) // world]"},
    "cut before, in a data set": {"mine": "list(range(len(rows)))[: len(rows) // world * world][rank::world]"},
    "cut before": {"part": "rows[: len(rows) // world * world][rank::world]"},
    "a test behind a cut": {"part": "[rows[i] for i in range(len(rows)) if i % world == rank][: len(rows) // world]"},
    "without the last batch": {"loaded": "drop_last=True"},
    "not loaded": {"part": "rows"},
    "a part that nobody is dealt": {"part": "Subset(rows, list(range(0, len(rows), 2)))"},
}


def _found(parts: dict[str, str]) -> list[int]:
    source = TRAIN.format(**PLAIN | parts).encode()
    return [f.place.line for f in check({"train.py": source}, Settings(select=("AR304",))).findings]


@pytest.mark.parametrize(("parts", "line"), UNEVEN.values(), ids=UNEVEN)
def test_every_nth_number_that_a_process_keeps_is_a_part_of_another_length(parts: dict[str, str], line: int) -> None:
    assert _found(parts) == [line]


@pytest.mark.parametrize("parts", EVEN.values(), ids=EVEN)
def test_numbers_that_are_cut_or_not_dealt_are_of_one_length(parts: dict[str, str]) -> None:
    assert _found(parts) == []
