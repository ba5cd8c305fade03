"""What a project's own functions say of the processes: how many there are, whose seed it is, that the job ends."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check

WORLD = """
import os
from torch import distributed as dist

def start():
    dist.init_process_group(backend="gloo")

def size():
    return int(os.environ.get("WORLD_SIZE", 1))

def is_main():
    return int(os.environ.get("RANK", 0)) == 0
"""
GATHERS = """
import json
import world

def main(scores):
    world.start()
    if {several}:
        scores = world.gather(scores)
        if not world.is_main():
            return
    with open("scores.json", "w") as file:
        json.dump(scores, file)

main([])
"""
STOPS = """
import math, sys
import misc

def train(model, loader):
    for batch in loader:
        loss = model(batch)
        value = loss.item()
        if not math.isfinite(value):
            {leaves}
        loss.backward()
        value = misc.all_reduce_mean(value)
"""
EVALUATES = """
import bmtrain as bmt
import torch.distributed as dist
import torch

def evaluate(model, loader):
    losses = []
    for batch in loader:
        losses.append(bmt.sum_loss(model(batch)))
    return torch.stack(losses).mean().item()

def train(model, loader, patience):
    {counted}, best = 0, 1e9
    for batch in loader:
        loss = model(batch)
        loss.backward()
        eval_loss = evaluate(model, loader)
        if eval_loss < best:
            best = eval_loss
        else:
            {counted} += 1
        if {counted} == patience:
            return
"""
LOADS = """
import os
import torch.distributed as dist
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
options = resolve({}, {told})
loader = create_loader(data, options, dist.get_world_size())
"""


def codes(files: dict[str, str], *select: str) -> list[str]:
    sources = {path: textwrap.dedent(text).encode() for path, text in files.items()}
    return [one.code for one in check(sources, Settings(select=select)).findings]


@pytest.mark.parametrize(("several", "found"), [("world.size() > 1", []), ("len(scores) > 1", ["AR102"])])
def test_a_function_for_the_number_of_processes_says_that_there_are_several(several: str, found: list[str]) -> None:
    files = {"world.py": WORLD, "train.py": GATHERS.format(several=several)}
    assert codes(files, "AR102") == found


@pytest.mark.parametrize(
    ("leaves", "found"),
    [
        ("sys.exit(1)", []),
        ("raise ValueError", []),
        ("sys.exit('no number')", []),
        ("sys.exit(0)", ["AR203"]),
        ("return", ["AR203"]),
    ],
)
def test_who_ends_with_an_error_ends_the_job(leaves: str, found: list[str]) -> None:
    """The launcher takes the others down; who ends well is waited for."""
    assert codes({"train.py": STOPS.format(leaves=leaves)}, "AR203") == found


@pytest.mark.parametrize(
    ("counted", "found"), [("eval_loss_increase", []), ("loss_increase", ["AR209"]), ("loss_value_increase", ["AR209"])]
)
def test_a_loss_of_held_out_data_is_not_that_of_the_batch(counted: str, found: list[str]) -> None:
    assert codes({"train.py": EVALUATES.format(counted=counted)}, "AR209") == found


@pytest.mark.parametrize(("told", "found"), [("verbose=local_rank == 0", []), ("rank=local_rank", ["AR306"])])
def test_a_switch_that_a_call_is_given_makes_no_rank_of_its_result(told: str, found: list[str]) -> None:
    assert codes({"train.py": LOADS.replace("{told}", told)}, "AR306")[:1] == found
