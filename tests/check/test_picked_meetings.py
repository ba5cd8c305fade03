"""Collectives that a process alone does not come to: under another name, and behind a rank that it has not."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TRAIN = b"""
import argparse
import torch.distributed as dist
from trainer import Trainer

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ddp", action="store_true")
    Trainer(parser.parse_args()).score(1)

if __name__ == "__main__":
    main()
"""
TRAINER = """
import torch.distributed as dist

class Trainer:
    def __init__(self, cfg):
        self.use_ddp = cfg.ddp
        if self.use_ddp:
            dist.init_process_group("nccl")
        self.reduce = dist.all_reduce if self.use_ddp else (lambda one: one)

    def score(self, hits):
        {call}(hits)
"""


@pytest.mark.parametrize(("call", "codes"), [("self.reduce", []), ("dist.all_reduce", ["AR205"])])
def test_who_has_no_group_may_have_picked_another_function(call: str, codes: list[str]) -> None:
    files = {"train.py": TRAIN, "trainer.py": TRAINER.format(call=call).encode()}
    assert [one.code for one in check(files, Settings(select=("AR205",))).findings] == codes


WAITS = """
import argparse
import torch.distributed as dist

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default={alone})
    parser.add_argument("--ddp", action="store_true")
    args = parser.parse_args()
    if args.ddp:
        dist.init_process_group("nccl")
    if args.local_rank == 0:
        dist.barrier()

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(("alone", "codes"), [(-1, []), (0, ["AR205"])])
def test_who_is_alone_may_have_a_rank_of_his_own(alone: int, codes: list[str]) -> None:
    text = WAITS.format(alone=alone).encode()
    assert [one.code for one in check({"train.py": text}, Settings(select=("AR205",))).findings] == codes


COUNTS = """
import torch.distributed as dist

def evaluate(args, loader):
    if args.distributed:
        loader.sampler.set_epoch(0)
    done = go_through(loader)
    if {asked} and dist.get_rank() == 0:
        print("some samples were left out, or seen twice")

def main(args, loader):
    if args.distributed:
        dist.init_process_group("nccl")
    evaluate(args, loader)

if __name__ == "__main__":
    main(read(), load())
"""


@pytest.mark.parametrize(("asked", "codes"), [("len(loader.dataset) != done", []), ("done", ["AR205"])])
def test_who_is_alone_has_gone_through_all(asked: str, codes: list[str]) -> None:
    """What stands behind that is not asked then."""
    text = COUNTS.format(asked=asked).encode()
    assert [one.code for one in check({"train.py": text}, Settings(select=("AR205",))).findings] == codes
