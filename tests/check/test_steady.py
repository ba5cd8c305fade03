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
COUNTED = """\
    batches = iter(loader)
    for at in range(steps):
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(loader)
            batch = next(batches)
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
CUT = """\
    for batch in itertools.islice(itertools.chain.from_iterable(itertools.repeat(loader)), steps):
        step(model, batch)
"""
ENDLESS = """\
    for at, batch in enumerate(forever(loader)):
        step(model, batch)
        if at == steps:
            break
"""
AGREED = """\
    batches = iter(loader)
    while True:
        batch = next(batches, None)
        if not all_have(batch):
            break
        step(model, batch)
"""
REDUCED = """\
    batches = iter(loader)
    while True:
        batch = next(batches, None)
        left = torch.tensor([batch is None])
        dist.all_reduce(left, op=dist.ReduceOp.MAX)
        if left.item():
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
JOINED = """\
    with Join([model]):
        for batch in loader:
            step(model, batch)
"""


def lines(stream: str, train: str) -> list[int]:
    files = {"stream.py": stream.encode(), "train.py": train.encode()}
    return [one.place.line for one in check(files, Settings(select=("AR304",))).findings]


@pytest.mark.parametrize("body", [COUNTED, CUT, ENDLESS, AGREED, REDUCED, JOINED])
def test_steps_that_are_the_same_number_for_all_are_left_alone(body: str) -> None:
    assert lines(STREAM, HEAD + body) == []


@pytest.mark.parametrize("body", [DRAINED, GIVEN_UP, OWN_END])
def test_data_that_ends_on_each_process_by_itself_is_found(body: str) -> None:
    assert lines(STREAM, HEAD + body) == [11]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.rank :: self.world", "self.rank : len(self.files) - len(self.files) % self.world : self.world"),
        (
            "        self.files = files\n",
            "        self.files = files\n        self.many = len(files) // self.world * self.world\n",
        ),
        (
            "        self.files = files\n",
            "        if len(files) % self.world:\n            raise ValueError\n        self.files = files\n",
        ),
    ],
)
def test_a_source_that_is_cut_to_a_multiple_is_even(old: str, new: str) -> None:
    """In the slice's stop, there or in another method; or whatever is no multiple is refused."""
    stream = STREAM.replace(old, new)
    stream = stream.replace("rank :: self.world", "rank : self.many : self.world") if "many" in new else stream
    assert lines(stream, HEAD + DRAINED) == []


def test_what_is_drawn_for_all_processes_is_a_multiple_of_them() -> None:
    """`randint(n, (batch * world,))[rank::world]`; of as many numbers as somebody says, it need not be."""
    drawn = """\
import torch
import torch.distributed as dist


def batches(rows, batch, steps):
    rank, world = dist.get_rank(), dist.get_world_size()
    for step in range(steps):
        for i in torch.randint(len(rows), (batch * world,))[rank::world]:
            yield rows[i]
"""
    train = "import torch\nfrom stream import batches\n\nfor x in batches(rows, 8, 9):\n    model(x).backward()\n"
    assert lines(drawn, train) == []
    assert lines(drawn.replace("batch * world", "batch"), train) == [8]


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
