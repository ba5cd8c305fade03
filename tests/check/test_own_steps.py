"""A part of a list, and a backward pass for each item of it."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TRAIN = """\
import glob
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
files = sorted(glob.glob("data/*.pt"))[dist.get_rank()::dist.get_world_size()]
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for name in files:
    loss = model(torch.load(name)).mean()
    loss.backward()
    optimizer.step()
"""


def lines(text: str) -> list[int]:
    return [one.place.line for one in check({"train.py": text.encode()}, Settings(select=("AR304",))).findings]


def test_a_backward_pass_for_each_item_of_an_uneven_part_is_found() -> None:
    """At the top of a program, and in a function."""
    assert lines(TRAIN) == [7]
    head, body = TRAIN.split("files = ")
    function = "def train():\n    files = " + body.replace("\n", "\n    ").replace("in files", "in enumerate(files)")
    assert lines(f"{head}{function}\ntrain()\n") == [8]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("model = DistributedDataParallel(torch.nn.Linear(4, 4))", "files = files[: total // 8]"),
        ("DistributedDataParallel", "Net"),
        ("    loss.backward()\n", ""),
        ("    optimizer.step()", "    if len(files) > 7:\n        break"),
    ],
)
def test_parts_of_one_length_and_steps_that_meet_nobody_are_not(old: str, new: str) -> None:
    """Cut to one length; a model that is not wrapped; no backward pass; a loop that is left."""
    assert lines(TRAIN.replace(old, new)) == []


ORDERED = """\
import torch


class Ordered(torch.utils.data.Sampler):
    def __init__(self, rows, n, rank):
        self.rows, self.n, self.rank = rows, n, rank
        self.num = -(-len(rows) // n)

    def __iter__(self):
        order = list(range(len(self.rows)))
        return iter(order[self.rank : {stop} : self.n])
"""


@pytest.mark.parametrize(
    ("stop", "found"), [("self.num * self.n", []), ("len(self.rows)", [11]), ("self.num * 2", [11])]
)
def test_what_a_slice_stops_at_is_reckoned_with_its_own_step(stop: str, found: list[int]) -> None:
    """Whatever the number of processes is called."""
    assert lines(ORDERED.format(stop=stop)) == found


ITEMS = """\
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Prompts:
    def part(self, rank, world):
        for i, row in enumerate(self.rows):
            if i % world == rank:
                yield row


dist.init_process_group("nccl")
prompts, model = {made}, DDP(net)
for row in prompts.part(dist.get_rank(), dist.get_world_size()):
    model(row).backward()
"""


@pytest.mark.parametrize(("made", "found"), [("Prompts()", [8]), ("library.Prompts()", [])])
def test_a_method_is_told_what_its_objects_are_given(made: str, found: list[int]) -> None:
    """An object of another class is none of them."""
    assert lines(ITEMS.format(made=made)) == found


LOOKING = """\
import os
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset
from steps import shown


def main(args, model, dataset):
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    numbers = list(range(len(dataset)))
    mine = numbers[rank::world_size]
    subset = Subset(dataset, mine)
    loader = DataLoader(subset, batch_size=4, drop_last=False)
    with torch.{mode}():
        for images, numbers in loader:
            shown(model(images), numbers, args.epoch)
    dist.barrier()


if __name__ == "__main__":
    main(read(), make(), rows())
"""
STEPS = (
    "def shown(images, numbers, epoch):\n    print(images)\n\n\ndef step(model, batch):\n    model(batch).backward()\n"
)


@pytest.mark.parametrize(("mode", "found"), [("inference_mode", []), ("enable_grad", [12])])
def test_who_only_looks_goes_through_its_part_alone(mode: str, found: list[int]) -> None:
    """Whatever else there is in the files that it imports."""
    raw = {"sample.py": LOOKING.format(mode=mode).encode(), "steps.py": STEPS.encode()}
    assert [one.place.line for one in check(raw, Settings(select=("AR304",))).findings] == found
