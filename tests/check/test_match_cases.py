"""A ``match`` on the rank, and a ``while`` on it, part the ranks as an ``if`` does."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check

START = """\
import os
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
mode = os.environ["MODE"]
"""


def found(text: str) -> list[str]:
    """Return codes and lines below the start."""
    source = START + textwrap.dedent(text)
    findings = check({"train.py": source.encode()}, Settings(select=("AR2",))).findings
    return [f"{one.code}:{one.place.line - START.count(chr(10))}" for one in findings]


def test_a_case_for_one_rank_is_a_guard() -> None:
    """A number, several, the rest, a guard, a part of a tuple."""
    text = """\
    match rank:
        case 0:
            dist.barrier()
    match dist.get_rank():
        case 0 | 1:
            dist.barrier()
    match rank:
        case 0:
            print("first")
        case _:
            dist.barrier()
    match mode:
        case "train" if rank == 0:
            dist.barrier()
    match rank, mode:
        case 0, "train":
            dist.barrier()
    match rank:
        case int() as which if which == 0:
            dist.barrier()
    """
    assert found(text) == ["AR201:3", "AR201:6", "AR201:11", "AR201:14", "AR201:17", "AR201:20"]


def test_cases_that_all_take_alike_part_nobody() -> None:
    """By a setting; by rank, where all meet; and what is asked of a collective is asked once."""
    text = """\
    match mode:
        case "train" | "tune":
            dist.barrier()
        case {"steps": steps}:
            dist.all_reduce(steps)
        case [first, *_]:
            dist.broadcast(first, 0)
    match rank:
        case 0:
            dist.barrier()
        case _:
            print("waits")
            dist.barrier()
    def agreed():
        dist.barrier()
        return mode
    match agreed():
        case "train":
            print("train")
        case "tune":
            print("tune")
        case other:
            print(other)
    """
    assert found(text) == []


@pytest.mark.parametrize("test", ["rank == 0", "not rank", "rank == 0 and not os.path.exists('stop')"])
def test_a_loop_that_one_rank_alone_goes_round_is_a_guard(test: str) -> None:
    """The others go past it."""
    assert found(f"while {test}:\n    dist.barrier()\nprint()\n") == ["AR201:2"]


def test_a_loop_of_one_rank_that_meets_nobody_is_none() -> None:
    """The others wait behind it."""
    text = """\
    while rank == 0 and not os.path.exists("ready"):
        print("wait")
    dist.barrier()
    """
    assert found(text) == []


SET = """\
import torch
start = 0
if rank == 0 and os.path.exists("last.pt"):
    start = torch.load("last.pt")["epoch"] + 1
"""
AGREED = {
    "nobody": ("", ["AR201:6"]),
    "an object": ("told = [start]\ndist.broadcast_object_list(told, src=0)\nstart = told[0]\n", []),
    "a tensor": ("told = torch.tensor(start)\ndist.broadcast(told, 0)\nstart = int(told.item())\n", []),
    "a tensor of its own name": ("start = torch.tensor([start])\ndist.broadcast(start, 0)\n", []),
    "a function": (
        "def tell(x):\n    x = torch.tensor(x)\n    dist.broadcast(x, 0)\n    return x.item()\nstart = tell(start)\n",
        [],
    ),
    "a communicator": ("from mpi4py import MPI\nstart = MPI.COMM_WORLD.bcast(start, root=0)\n", []),
}


@pytest.mark.parametrize("how", AGREED)
def test_a_loop_whose_bounds_one_rank_has_set_meets_unevenly(how: str) -> None:
    """Unless it has told the others."""
    told, expected = AGREED[how]
    text = f"{SET}{told}for epoch in range(start, 10):\n    dist.barrier()\n"
    assert found(text) == expected


def test_bounds_that_say_who_is_who_are_left_alone() -> None:
    """A loop that meets nobody; one of the rank that has set its bounds; what all set alike; stages of a pipeline."""
    text = """\
    if rank == 0:
        count = 7
        for step in range(count):
            print(step)
    for step in range(3):
        dist.barrier()
    if mode:
        last = 4
    else:
        last = 5
    for step in range(last):
        dist.barrier()
    from megatron.core import parallel_state
    warm = 0
    if parallel_state.get_pipeline_model_parallel_rank() == 0:
        warm = 4
    for step in range(warm):
        dist.barrier()
    """
    assert found(text) == []
