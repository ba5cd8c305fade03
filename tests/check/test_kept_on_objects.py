"""What is known of a value that is kept in a field, given by a property or is the default of an option, in another
file: how many GPUs this host has, what its clock says.
"""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

LAUNCH = b"torchrun --nnodes=2 --nproc-per-node=8 train.py\n"
SAMPLES = """\
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
import settings
def main():
    dist.init_process_group("gloo")
    host = settings.Host()
    sampler = DistributedSampler([1], num_replicas=host.gpus, rank=dist.get_rank())
    for row in DataLoader([1], sampler=sampler):
        dist.all_reduce(row)
main()
"""
FIELD = """\
import torch
from dataclasses import dataclass, field
@dataclass
class Host:
    gpus: int = field(default_factory=torch.cuda.device_count)
"""
OF_THE_JOB = """\
import torch, torch.distributed as dist
class Host:
    @property
    def gpus(self):
        return dist.get_world_size() if dist.is_initialized() else torch.cuda.device_count()
"""
OPTIONS = """\
import argparse, time
def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", default="runs/" + time.strftime("%H%M%S"))
    return parser.parse_args()
"""
WRITES = """\
import os, torch.distributed as dist
from options import parse
def main():
    dist.init_process_group("gloo")
    args = parse()
    AGREE
    write(args)
def write(args):
    os.makedirs(args.output)
    open(f"{args.output}/{dist.get_rank()}.txt", "w").write("1")
    dist.barrier()
    print([open(f"{args.output}/{rank}.txt").read() for rank in range(8)])
main()
"""


def found(code: str, **files: str) -> list[tuple[str, int]]:
    sources = {f"{name}.py": text.encode() for name, text in files.items()} | {"run.sh": LAUNCH}
    return [(f.place.path, f.place.line) for f in check(sources, Settings(select=(code,))).findings]


def test_the_gpus_of_this_host_stand_in_for_the_job_where_there_is_none() -> None:
    assert found("AR303", train=SAMPLES, settings=OF_THE_JOB) == []


def test_who_joins_the_gpus_of_this_host_has_no_others() -> None:
    alone = SAMPLES.replace('"gloo")', '"gloo", rank=0, world_size=settings.Host().gpus)')
    assert found("AR303", train=alone, settings=FIELD) == []


def test_the_default_of_an_option_is_what_each_process_finds() -> None:
    assert found("AR107", train=WRITES.replace("AGREE", "pass"), options=OPTIONS)[:1] == [("train.py", 9)]
    agreed = WRITES.replace("AGREE", "args.output = share(args.output)")
    assert found("AR107", train=agreed, options=OPTIONS) == []
    plain = OPTIONS.replace(' + time.strftime("%H%M%S")', "")
    other = f"{OPTIONS}print(parse().output)\n"
    assert found("AR107", train=WRITES.replace("AGREE", "pass"), options=plain, other=other) == []


SWITCHED = """\
import wandb, torch.distributed as dist
class Log:
    def __init__(self, online, folder):
        self.online, self.folder = online, folder
    def begin(self):
        if BRANCH:
            self.online = False
        if self.online:
            wandb.init(project="p")
def main(args):
    dist.init_process_group("gloo")
    Log(True, args.folder).begin()
main(parse())
"""


@pytest.mark.parametrize(("branch", "lines"), [("not self.folder.name", [9]), ("True", [])])
def test_what_a_branch_switches_off_is_on_where_it_was_not_taken(branch: str, lines: list[int]) -> None:
    assert found("AR103", train=SWITCHED.replace("BRANCH", branch)) == [("train.py", line) for line in lines]
