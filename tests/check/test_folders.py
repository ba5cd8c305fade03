"""Folders that are there for certain when a process looks for them."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

HEAD = """\
import os
import sys
import torch.distributed as dist

"""


def lines(body: str) -> list[int]:
    found = check({"train.py": (HEAD + body).encode()}, Settings(select=("AR108",))).findings
    return [one.place.line - HEAD.count("\n") for one in found]


TRAIN = """\
def train(folder, options):
    if not os.path.exists(folder):
        os.makedirs(folder)

dist.init_process_group("nccl")
options = read(sys.argv)
out = options.out
{}
train(out, options)
"""
AGAIN = {
    "every rank has made it": ("os.makedirs(out, exist_ok=True)", []),
    "every rank has looked and made it": ("if not os.path.exists(out):\n    os.makedirs(out)", [9]),
    "what is in it was made": ("os.makedirs(os.path.join(out, 'logs'), exist_ok=True)", []),
    "rank 0 has made it, and they have met": (
        "if dist.get_rank() == 0:\n    os.makedirs(out, exist_ok=True)\ndist.barrier()",
        [],
    ),
    "rank 0 may not have made it yet": ("if dist.get_rank() == 0:\n    os.makedirs(out, exist_ok=True)", [3]),
    "it is made sometimes": ("if options.keep:\n    os.makedirs(out, exist_ok=True)", [3]),
    "it is made in a loop": ("for one in options.steps:\n    os.makedirs(out, exist_ok=True)", [3]),
    "another one is made": ("os.makedirs(options.logs, exist_ok=True)", [3]),
    "it gets another name": ("os.makedirs(out, exist_ok=True)\nout = out + '/new'", [3]),
}


@pytest.mark.parametrize("what", AGAIN)
def test_a_folder_that_was_made_on_the_way_is_not_made_again(what: str) -> None:
    """By the same process, or by rank 0 before a meeting, and under no condition that may not hold."""
    before, expected = AGAIN[what]
    assert lines(TRAIN.format(before)) == expected


def test_the_parent_makes_it_before_it_starts_the_others() -> None:
    body = """\
def work(rank, args):
    dist.init_process_group("nccl", rank=rank)
    if not os.path.exists(args.out):
        os.makedirs(args.out)

def main(args):
    {}
    mp.spawn(work, args=(args,), nprocs=8)

main(sys.argv)
"""
    start = "import torch.multiprocessing as mp\n"
    assert lines(start + body.format("pass")) == [5]
    assert lines(start + body.format("os.makedirs(args.out, exist_ok=True)")) == []


def test_two_calls_have_two_paths() -> None:
    """A parameter is another one in each call; who makes it for others has not made it for this one."""
    body = """\
def make(folder):
    if not os.path.exists(folder):
        os.makedirs(folder)

dist.init_process_group("nccl")
for one in sys.argv:
    os.makedirs(one, exist_ok=True)
make(os.environ["A"])
make(os.environ["B"])
"""
    assert lines(body) == [3]


def test_settings_that_are_set_on_the_way_are_another_path() -> None:
    body = """\
def finish(args):
    args.out = args.out + "/new"

def main(args):
    dist.init_process_group("nccl")
    os.makedirs(args.out, exist_ok=True)
    finish(args)
    if not os.path.exists(args.out):
        os.makedirs(args.out)
"""
    assert lines(body) == [9]
    assert lines(body.replace("args.out =", "out =")) == []


def test_a_folder_that_rank_0_makes_in_the_body_of_a_program_may_not_be_there() -> None:
    """As in a function: the others write into it, and nobody waits."""
    text = """\
import os
import torch.distributed as dist
if args.rank == 0:
    os.makedirs(args.logs, exist_ok=True)
open(args.logs + f"/{args.rank}.log", "w")
"""
    findings = check({"train.py": text.encode()}, Settings(select=("AR405",))).findings
    assert [one.place.line for one in findings] == [5]
    waits = text.replace("open(", "dist.barrier()\nopen(")
    assert not check({"train.py": waits.encode()}, Settings(select=("AR405",))).findings
