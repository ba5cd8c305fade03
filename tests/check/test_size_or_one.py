"""What stands in for a number that nobody gave is not that number where somebody did."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

SAVES = """\
import torch
import torch.distributed as dist

class Trainer:
    def __init__(self, args):
        self.args = args
        self.parts = args.{size} or 1

    def save(self):
        if self.parts == 1 or self.args.local_rank in (-1, 0):
            torch.save({{}}, "last.pt")

def main(args):
    dist.init_process_group("nccl")
    Trainer(args).save()

main(parse())
"""


@pytest.mark.parametrize("size", ["distributed_world_size", "parts", "n_parts"])
def test_a_number_or_one_need_not_be_one(size: str) -> None:
    found = check({"train.py": SAVES.format(size=size).encode()}, Settings(select=("AR101",))).findings
    assert [(f.place.line, f.confidence) for f in found if f.confidence == "high"] == []


def test_a_switch_that_is_on_at_last_is_on() -> None:
    text = SAVES.format(size="x").replace("or 1", "or True").replace("self.parts == 1 or", "self.parts or")
    found = check({"train.py": text.encode()}, Settings(select=("AR101",))).findings
    assert [f.place.line for f in found] == [11]
