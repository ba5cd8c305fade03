"""Paths of a process' own that go through `*args`, or wait in a list of tuples; objects that a method puts away."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

HANDED_ON = """\
import torch
import torch.distributed as dist

class Pool:
    def submit(self, function, *args):
        return self.inner.submit(function, *args)

def write(pool, postfix):
    def save(state, path):
        torch.save(state, path)
    pool.submit(save, {{}}, f"out/{{postfix}}.pt")

dist.init_process_group("nccl")
write(Pool(), {})
"""
WAITING = """\
import torch
import torch.distributed as dist
from uuid import uuid4

class Writer:
    def __init__(self):
        self.finished = []

    def finish(self, run):
        self.finished.append(({}, run))

    def write(self):
        while self.finished:
            path, run = self.finished.pop()
            torch.save(run, path)

dist.init_process_group("nccl")
writer = Writer()
writer.finish({{}})
writer.write()
"""
PUT_AWAY = """\
import os
from accelerate import Accelerator

class Stored:
    def filter(self, names):
        for name in names:
            os.remove(name)

class Experiment:
    def start(self):
        self.accelerator = Accelerator()
        self.make_runs()

    def make_runs(self):
        self.runs = Stored()

    def learn(self):
        self.runs.filter(["a"])

experiment = Experiment()
experiment.start()
experiment.learn()
"""


def lines(text: str, code: str) -> list[int]:
    found = check({"train.py": text.encode()}, Settings(select=(code,))).findings
    return [one.place.line for one in found]


@pytest.mark.parametrize(("postfix", "expected"), [("dist.get_rank()", []), ("'last'", [10])])
def test_a_path_stays_its_own_through_star_arguments(postfix: str, expected: list[int]) -> None:
    assert lines(HANDED_ON.format(postfix), "AR101") == expected


@pytest.mark.parametrize(("path", "expected"), [("f'{uuid4().hex}.pt'", []), ("'last.pt'", [15])])
def test_a_path_stays_its_own_in_a_list_of_tuples(path: str, expected: list[int]) -> None:
    assert lines(WAITING.format(path), "AR101") == expected


def test_a_method_of_what_another_method_puts_away_is_known() -> None:
    """Though nothing else in the method that makes it matters."""
    assert lines(PUT_AWAY, "AR109") == [7]
