"""A part of a list, and a backward pass for each item of it."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check


def lines(text: str) -> list[int]:
    return [one.place.line for one in check({"train.py": text.encode()}, Settings(select=("AR304",))).findings]


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
