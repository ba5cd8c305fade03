"""What looks like a fault of several processes and is meant so: each is shown with the fault that it resembles."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

BATCHES = """\
import torch.distributed as dist

class Dealt:
    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        rank, size = dist.get_rank(), dist.get_world_size()
        for batch in self.sampler:
            {gives}
"""
COUNTED = """\
import os
import torch.distributed as dist

dist.init_process_group("nccl")

def check_rollout_files(where):
    found = []
    for folder in ("a", "b"):
        files = [name for name in os.listdir(folder) if name]
        found.append({kept})
    return found[0]

print(check_rollout_files("."))
"""
LEFT = """\
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def train(config, dataset, step):
    loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
    {before}
    for epoch in range(10):
        {within}
            loader.sampler.set_epoch(epoch)
        for batch in loader:
            step(batch)
"""
STARTED = """\
import os
from functools import partial
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def work(rank, size):
    {joins}
    print(rank)

def main():
    if not os.path.isdir("out"):
        os.makedirs("out")
    size = torch.cuda.device_count()
    for number in range(size):
        mp.Process(target=partial(work, size=size), args=(number,)).start()
    dist.barrier()

main()
"""
LOCAL = """\
import torch
import torch.distributed as dist

def save(optimizer, folder):
    for name, weight in optimizer.{of}():
        torch.save(weight, f"{{folder}}/{{name}}.pth")

dist.init_process_group("nccl")
save(make(), "out")
"""


def lines(code: str, text: str) -> list[int]:
    return [f.place.line for f in check({"train.py": text.encode()}, Settings(select=(code,))).findings]


@pytest.mark.parametrize(
    ("gives", "expected"), [("yield batch[rank::size]", []), ("yield from batch[rank::size]", [10])]
)
def test_a_batch_is_dealt_out_in_itself(gives: str, expected: list[int]) -> None:
    assert lines("AR304", BATCHES.format(gives=gives)) == expected


@pytest.mark.parametrize(("kept", "expected"), [("len(files)", []), ("files", [9])])
def test_files_are_listed_to_be_counted(kept: str, expected: list[int]) -> None:
    assert lines("AR307", COUNTED.format(kept=kept)) == expected


@pytest.mark.parametrize(
    ("before", "within", "expected"),
    [
        ("if config.bench and dist.get_rank() == 0: return", "if epoch:", []),
        ("pass", "if dist.get_rank() == 0:", [9]),
    ],
)
def test_who_has_left_before_the_epochs_deals_nothing(before: str, within: str, expected: list[int]) -> None:
    text = LEFT.format(before=before, within=within)
    assert lines("AR302", text) == expected


@pytest.mark.parametrize(("joins", "expected"), [("dist.init_process_group('gloo', rank=rank)", []), ("pass", [13])])
def test_who_starts_the_processes_by_hand_does_the_rest_before(joins: str, expected: list[int]) -> None:
    assert lines("AR108", STARTED.format(joins=joins)) == expected


@pytest.mark.parametrize(("of", "expected"), [("iterate_local_weights", []), ("iterate_weights", [6])])
def test_what_lies_on_a_process_is_its_own(of: str, expected: list[int]) -> None:
    assert lines("AR101", LOCAL.format(of=of)) == expected


REGISTRY = """\
import importlib

KNOWN = {{"one": ("{module}", "Trainer")}}

def load(name):
    module, kind = KNOWN[name]
    return getattr(importlib.import_module(module), kind)
"""
PROGRAM = """\
from torch.utils.data import DataLoader, DistributedSampler
from engine import load

def main(rows):
    loader = DataLoader(rows, sampler=DistributedSampler(rows))
    for epoch in range(3):
        load("one")(loader).run()
        loss.backward()

main([])
"""
TRAINER = """\
class Trainer:
    def run(self):
        self.loader.sampler.set_epoch(1)
"""


@pytest.mark.parametrize(("module", "expected"), [("engine.loops", []), ("engine.others", [5])])
def test_a_module_that_a_registry_names_is_part_of_the_program(module: str, expected: list[int]) -> None:
    files = {"train.py": PROGRAM, "engine/__init__.py": REGISTRY.format(module=module), "engine/loops.py": TRAINER}
    raw = {name: text.encode() for name, text in files.items()}
    assert [f.place.line for f in check(raw, Settings(select=("AR302",))).findings] == expected
