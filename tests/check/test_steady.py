"""Every N-th item is dealt out in one file, and in another the steps are the same number for all; or the source is a
multiple of the processes by how it was made."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

STREAM = """\
import torch.distributed as dist
from torch.utils.data import IterableDataset


class Lines(IterableDataset):
    def __init__(self, files):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.files = files

    def __iter__(self):
        for name in self.files[self.rank :: self.world]:
            yield from open(name)
"""
HEAD = """\
import itertools
import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from stream import Lines


def step(model, batch):
    model(batch).mean().backward()


def forever(loader):
    while True:
        yield from loader


def all_have(batch):
    flag = torch.tensor([int(batch is not None)])
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return bool(flag.item())


def main(files, steps, epochs):
    dist.init_process_group("nccl")
    model, loader = DDP(torch.nn.Linear(2, 2)), DataLoader(Lines(files), 8)
"""
DRAINED = """\
    for epoch in range(epochs):
        for batch in loader:
            step(model, batch)
"""
GIVEN_UP = """\
    batches = iter(loader)
    for at in range(steps):
        try:
            batch = next(batches)
        except StopIteration:
            break
        step(model, batch)
"""
OWN_END = """\
    batches = iter(loader)
    while True:
        batch = next(batches, None)
        if batch is None:
            break
        step(model, batch)
"""


def lines(stream: str, train: str) -> list[int]:
    files = {"stream.py": stream.encode(), "train.py": train.encode()}
    return [one.place.line for one in check(files, Settings(select=("AR304",))).findings]


@pytest.mark.parametrize("body", [DRAINED, GIVEN_UP, OWN_END])
def test_data_that_ends_on_each_process_by_itself_is_found(body: str) -> None:
    assert lines(STREAM, HEAD + body) == [11]


EMBEDS = """\
import numpy as np
import torch.distributed as dist


def rows(path, rank, world):
    with open(path) as file:
        for i, line in enumerate(file):
            if i % world == rank:
                yield line


def main(model):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    found = [{each} for row in rows("rows.txt", rank, world)]
    np.save(f"part-{{rank}}.npy", found)
    dist.barrier()


if __name__ == "__main__":
    main(load())
"""


@pytest.mark.parametrize(("each", "lines"), [("model(row)", []), ("model(row).backward()", [8])])
def test_who_goes_through_a_part_alone_needs_no_equal_parts(each: str, lines: list[int]) -> None:
    """A program that neither trains nor gathers meets the others in a barrier behind its loop alone."""
    findings = check({"embed.py": EMBEDS.format(each=each).encode()}, Settings(select=("AR304",))).findings
    assert [one.place.line for one in findings] == lines
