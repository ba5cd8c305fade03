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
