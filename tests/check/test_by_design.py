"""What looks like a fault of several processes and is meant so: each is shown with the fault that it resembles."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

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


@pytest.mark.parametrize(("joins", "expected"), [("dist.init_process_group('gloo', rank=rank)", []), ("pass", [13])])
def test_who_starts_the_processes_by_hand_does_the_rest_before(joins: str, expected: list[int]) -> None:
    assert lines("AR108", STARTED.format(joins=joins)) == expected


@pytest.mark.parametrize(("of", "expected"), [("iterate_local_weights", []), ("iterate_weights", [6])])
def test_what_lies_on_a_process_is_its_own(of: str, expected: list[int]) -> None:
    assert lines("AR101", LOCAL.format(of=of)) == expected
