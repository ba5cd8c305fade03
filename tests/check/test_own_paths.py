"""Paths with the rank in them that are kept in an object of which nothing else is known."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TEXT = """\
import os
import torch
import torch.distributed as dist

class Keeper:
    def start(self, runner):
        runner.model.queue_path = os.path.join("out", {})

    def save(self, runner):
        torch.save({{}}, runner.model.queue_path)

def main(runner):
    dist.init_process_group("nccl")
    keeper = Keeper()
    keeper.start(runner)
    keeper.save(runner)

main(make())
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [("'queue' + str(dist.get_rank()) + '.pth'", []), ("f'{os.getpid()}.pth'", []), ("'queue.pth'", [10])],
)
def test_a_path_is_kept_under_the_words_of_its_file(name: str, expected: list[int]) -> None:
    found = check({"train.py": TEXT.format(name).encode()}, Settings(select=("AR101",))).findings
    assert [one.place.line for one in found] == expected


def test_another_file_may_mean_another_object() -> None:
    other = TEXT.format("f'{dist.get_rank()}.pth'")
    files = {"train.py": TEXT.format("'queue.pth'"), "other.py": other}
    sources = {path: text.encode() for path, text in files.items()}
    assert [one.place.path for one in check(sources, Settings(select=("AR101",))).findings] == ["train.py"]


@pytest.mark.parametrize(("names", "found"), [('("logs", "samples")', ["AR108"]), ("samples", [])])
def test_a_loop_over_names_that_are_written_there_goes_over_no_samples(names: str, found: list[str]) -> None:
    text = f"""\
import os
import torch.distributed as dist

def make(root, samples):
    dist.init_process_group("nccl")
    for name in {names}:
        folder = os.path.join(root, name)
        if not os.path.exists(folder):
            os.mkdir(folder)

make("/shared/run", load())
"""
    findings = check({"train.py": text.encode()}, Settings(select=("AR108",))).findings
    assert [one.code for one in findings] == found
