"""Where code asks before a meeting whether there are others, and where a group of one is made: AR205."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check


def _codes(text: str) -> list[str]:
    sources = {"train.py": ("import torch\nimport torch.distributed as dist\n" + textwrap.dedent(text)).encode()}
    return [finding.code for finding in check(sources, Settings(select=("AR205",))).findings]


ACCELERATED = """
from accelerate import Accelerator, DeepSpeedPlugin

accelerator = Accelerator({given})

def load(path):
    data = read(path)
    dist.barrier()
    return data

def main(path):
    train(accelerator, load(path))
    if dist.is_initialized():
        dist.barrier()
"""


@pytest.mark.parametrize(("given", "found"), [("deepspeed_plugin=DeepSpeedPlugin()", []), ("cpu=True", ["AR205"])])
def test_deepspeed_makes_a_group_of_one(given: str, found: list[str]) -> None:
    """Accelerate alone makes none."""
    assert _codes(ACCELERATED.format(given=given)) == found


FLAG = """
def main(args):
    if args.distributed:
        dist.init_process_group("nccl")
    stop = torch.zeros(1) if {asked} else None
    for epoch in range(9):
        train(epoch)
        if stop is not None:
            dist.broadcast(stop, src=0)
"""


@pytest.mark.parametrize(("asked", "found"), [("args.distributed", []), ("args.patience", ["AR205"])])
def test_what_is_there_for_several_alone_says_that_there_are_others(asked: str, found: list[str]) -> None:
    """A flag that is None where there are no others."""
    assert _codes(FLAG.format(asked=asked)) == found
