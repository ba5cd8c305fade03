"""What an assignment to several names, one of them with a star, takes a value apart into."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check

ENGINE = """
import deepspeed
import torch.distributed as dist

{} = deepspeed.initialize(model=1)
if dist.get_rank() == 0:
    {}.save_checkpoint("out")
"""
RANKS = """
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
{}
torch.save(1, f"{{of}}.pt")
"""
CASES = {
    "the first, and a star for the others": (ENGINE.format("engine, *_", "engine"), ["AR201"]),
    "the first two, and a star": (ENGINE.format("engine, optimizer, *others", "engine"), ["AR201"]),
    "a star in the middle": (ENGINE.format("engine, *others, scheduler", "engine"), ["AR201"]),
    "what the star is given": (ENGINE.format("*others, scheduler", "others[0]"), ["AR201"]),
    "not the engine": (ENGINE.format("engine, *others", "others[0]"), []),
    "more targets than there is": (ENGINE.format("a, b, c, d, e, *engine", "a"), []),
    "the rank first": (RANKS.format("of, *others = dist.get_rank(), 1, 2"), []),
    "the rank last": (RANKS.format("*others, of = 1, 2, dist.get_rank()"), []),
    "what is the same on all": (RANKS.format("own, *others, of = dist.get_rank(), 1, 2"), ["AR101"]),
    "more than is kept of a list": (RANKS.format("*others, of = 1, 2, 3, 4, 5, 6, 7, 8, dist.get_rank()"), []),
    "what the rank is in": (RANKS.format("*of, other = 1, dist.get_rank(), 2"), []),
    "of a part of what nobody knows": (RANKS.format("first, *of = parts(dist.get_rank())"), ["AR101"]),
}


@pytest.mark.parametrize("case", CASES)
def test_an_assignment_to_several_names(case: str) -> None:
    text, expected = CASES[case]
    found = check({"train.py": textwrap.dedent(text).encode()}, Settings(select=("AR101", "AR201"))).findings
    assert [finding.code for finding in found] == expected
