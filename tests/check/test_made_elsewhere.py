"""A group that a program makes in another file, which finds its trainers through a package."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TRAINER = """\
import torch.distributed as dist


class Trainer:
    def __init__(self, config):
        self.distributed = dist.is_initialized()

    def train(self, steps):
        if self.distributed:
            print("together")
        for step in range(steps):
            print(step)
        dist.barrier()
"""
ALWAYS = """\
if args.deepspeed:
    deepspeed.init_distributed()
else:
    dist.init_process_group("nccl")
"""
IF_SEVERAL = """\
multi_gpu = torch.cuda.device_count() > 1
if multi_gpu:

    def join():
        dist.init_process_group("nccl")

    join()
"""


@pytest.mark.parametrize(("joins", "found"), [(ALWAYS, 0), (IF_SEVERAL, 1), ("", 1)])
def test_whoever_makes_the_group_in_the_project_makes_it_in_any_case(joins: str, found: int) -> None:
    program = f"""\
import argparse
import deepspeed
import torch
import torch.distributed as dist
from trainers import KINDS


def main(args):
{"".join(f"    {line}" + chr(10) for line in joins.splitlines())}    KINDS[args.kind](args).train(10)


parser = argparse.ArgumentParser()
parser.add_argument("--kind")
parser.add_argument("--deepspeed", action="store_true")
main(parser.parse_args())
"""
    package = "from .base import *\n\nKINDS = {'base': Trainer}\n"
    files = {"train.py": program, "trainers/__init__.py": package, "trainers/base.py": TRAINER}
    findings = check({path: text.encode() for path, text in files.items()}, Settings()).findings
    assert [finding.code for finding in findings].count("AR205") == found
