"""Where processes seem to part, and it is told from elsewhere, or hangs on more, that they meet alike."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

CONTEXT = """\
import torch.distributed as dist
from contextlib import nullcontext

def make_group():
    try:
        return dist.new_group(backend="gloo")
    except Exception:
        return None

def wait(group):
    if group is not None:
        dist.barrier(group=group)
        return
    made = make_group()
    if made is None:
        dist.barrier()
    else:
        dist.monitored_barrier(group=made)

class First:
    def __init__(self, group=None):
        self.group = group
    def __enter__(self):
        self.first = dist.get_rank() == 0
        if not self.first:
            wait(self.group)
    def __exit__(self, *error):
        if {ends}:
            wait(self.group)

class Recipe:
    def build(self, settings, group=None):
        context = nullcontext() if settings.alone else First(group=group)
        return settings.make(context)

def main(settings, mesh):
    dist.init_process_group("nccl")
    Recipe().build(settings, getattr(mesh, "group", None))
"""
# Of a context: where its end has a condition, and the lines of what is found.
ENDS = {
    "self.first": [],
    "self.first and self.group is not None": [26, 29],
    "self.first and False": [26],
}
GANG = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Gang:
    def __init__(self, rank):
        self.rank = rank

def gang(groups):
    return {made}

def save(model, groups):
    if gang(groups).rank != 0:
        return
    print(model.state_dict())

dist.init_process_group("nccl")
save(FSDP(torch.nn.Linear(2, 2)), make_groups())
"""
GANGS = {
    "Gang(dist.get_rank(groups[1])) if len(groups) > 1 else Gang(dist.get_rank())": [],
    "Gang(dist.get_rank())": ["AR202"],
}
LEAVING = """\
import torch.distributed as dist

def validate(args, parts):
    rows = parts[dist.get_rank()]
    for name in args.names:
        if {leaves}:
            continue
        dist.barrier()

dist.init_process_group("nccl")
validate(parse(), read())
"""
LEAVES = {
    "not args.streams and len(rows) == 0 and args.verbose": "low",
    "rows.first != 0": "high",
    "dist.get_rank() != 0": "high",
}
ROUNDS = """\
import torch.distributed as dist

def train(args, loader):
    if dist.get_rank() == 0:
        for batch in loader:
            dist.barrier()
    else:
        while True:
            {answer}
            if args.stop:
                break

dist.init_process_group("nccl")
train(parse(), load())
"""
FAILING = """\
import torch.distributed as dist

def save(model, path, rank):
    try:
        state = collect(model)
    except ValueError as error:
        print(error)
        dist.barrier()
        {leaves}
    {follows}
    if rank == 0:
        write(state, path)
"""
# Of a handler: how it is left, what follows behind it, and how sure it is that nobody waits with who fails.
FAILS = [
    ("return False", "dist.barrier()", "low"),
    ("raise", "dist.barrier()", "high"),
    ("return False", "print('saved')", "high"),
    ("return False", "dist.all_reduce(state)", "high"),
]
CUT = """\
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard
from parts import load, prepare_fully_shard

def share(model, mesh):
    {first}
    if dist.get_rank() == 0:
        print(get_model_state_dict(model))
    {then}

dist.init_process_group("nccl")
share(load(), None)
"""
# Of a model: what is done before its state is asked for, what afterwards, and whether all must ask.
CUTS = [
    ("pass", "fully_shard(model, mesh=mesh)", False),
    ("pass", "prepare_fully_shard(model, mesh)", False),
    ("fully_shard(model)", "pass", True),
    ("fully_shard(model)", "fully_shard(model)", True),
    ("pass", "fully_shard(load())", True),
]


def found(text: str, *codes: str) -> list[tuple[str, int, str]]:
    outcome = check({"train.py": text.encode()}, Settings(select=codes))
    return [(one.code, one.place.line, one.confidence) for one in outcome.findings]


@pytest.mark.parametrize("ends", ENDS)
def test_a_context_is_even_though_what_it_calls_asks_for_its_group(ends: str) -> None:
    assert [line for _, line, _ in found(CONTEXT.format(ends=ends), "AR201")] == ENDS[ends]


@pytest.mark.parametrize("made", GANGS)
def test_a_rank_that_may_be_one_of_a_group_says_nothing_of_models_in_parts(made: str) -> None:
    assert [code for code, _, _ in found(GANG.format(made=made), "AR201", "AR202")] == GANGS[made]


@pytest.mark.parametrize("leaves", LEAVES)
def test_who_leaves_by_more_than_the_rank_is_of_low_confidence(leaves: str) -> None:
    assert [sure for _, _, sure in found(LEAVING.format(leaves=leaves), "AR202")] == [LEAVES[leaves]]


@pytest.mark.parametrize(("answer", "sure"), [("dist.barrier()", "low"), ("dist.all_reduce(1)", "high")])
def test_sides_with_the_same_calls_in_other_loops_are_of_low_confidence(answer: str, sure: str) -> None:
    assert [sure for _, _, sure in found(ROUNDS.format(answer=answer), "AR201")] == [sure]


@pytest.mark.parametrize(("leaves", "follows", "sure"), FAILS)
def test_who_fails_meets_those_who_go_on(leaves: str, follows: str, sure: str) -> None:
    assert [sure for _, _, sure in found(FAILING.format(leaves=leaves, follows=follows), "AR210")] == [sure]


@pytest.mark.parametrize(("first", "then", "parts"), CUTS)
def test_a_model_that_is_cut_up_later_is_whole_till_then(first: str, then: str, parts: bool) -> None:
    assert bool(found(CUT.format(first=first, then=then), "AR201")) == parts
