"""A folder that each rank calls after its own clock is told once, where it is made, not at each file in it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from allranks.check.engine import Settings, check
from allranks.check.interpret.values import CLOCK, Value
from allranks.check.program import Event
from allranks.check.survey.facts import Facts
from allranks.check.survey.own_folders import is_of_another_program
from allranks.findings import Place

SAVES = """\
import os
import time
import torch
import torch.distributed as dist

def save(model, folder):
    {makes}
    torch.save(model, os.path.join(folder, "model.pt"))
    torch.save(model, os.path.join(folder, "best.pt"))

dist.init_process_group("nccl")
save(print, os.path.join("runs", time.strftime("%H%M%S")))
"""


@pytest.mark.parametrize(("makes", "lines"), [("os.makedirs(folder)", [7]), ("print(folder)", [8, 9])])
def test_a_folder_of_each_rank_is_told_where_it_is_made(makes: str, lines: list[int]) -> None:
    found = check({"train.py": SAVES.format(makes=makes).encode()}, Settings(select=("AR107",))).findings
    assert [one.place.line for one in found] == lines


LISTS = """\
import glob
import os
import torch.distributed as dist

dist.init_process_group("nccl")
paths = sorted(glob.glob("data/*.tar"))
{makes}
"""


@pytest.mark.parametrize(
    ("makes", "lines"),
    [
        ("for path in paths:\n    os.makedirs(path[:-4], exist_ok=True)", []),
        ("os.makedirs(paths[-1] + '1', exist_ok=True)", [7]),
    ],
)
def test_a_folder_for_each_of_what_lies_there_is_the_same_on_all_ranks(makes: str, lines: list[int]) -> None:
    found = check({"train.py": LISTS.format(makes=makes).encode()}, Settings(select=("AR107",))).findings
    assert [one.place.line for one in found] == lines


CUTS = """\
import datetime
import os
import torch.distributed as dist

def stamp(exact="second"):
    written = datetime.datetime.now().strftime("%Y%m%d%H%M%S")
    if exact == "second":
        return written
    elif exact == "hour":
        return written[:-4]
    elif exact == "day":
        return written[:-6]

dist.init_process_group("nccl")
os.makedirs(f"runs/{{{stamp}}}")
"""


@pytest.mark.parametrize(
    ("stamp", "lines"),
    [
        ("stamp()", [15]),
        ("stamp('hour')", [15]),
        ("stamp('day')", []),
        ("datetime.datetime.now().strftime('%m%d-%H%M')[:4]", []),
        ("datetime.datetime.now().strftime('%m%d-%H%M')[4:]", [15]),
    ],
)
def test_a_time_of_which_the_day_is_left_is_the_same_on_all(stamp: str, lines: list[int]) -> None:
    found = check({"train.py": CUTS.format(stamp=stamp).encode()}, Settings(select=("AR107",))).findings
    assert [one.place.line for one in found] == lines


class Imports:
    """A program of two files, and one beside it."""

    def imported_by(self, path: str) -> frozenset[str]:
        return frozenset([path, "stamps.py"])


def event(name: str, where: str, **more: Any) -> Event:
    return Event(name, None, Place(where, 1, 1, 1, 1), "main", **more)


@pytest.mark.parametrize(
    ("asked", "other"),
    [
        (["bench.py"], True),
        (["stamps.py", "bench.py"], False),
        (["train.py"], False),
        ([], False),
    ],
)
def test_a_clock_in_a_file_that_the_program_does_not_import_names_none_of_its_folders(
    asked: list[str], other: bool
) -> None:
    """What measures how long something took is no clock."""
    clocks = [event("time.strftime", path) for path in asked] + [event("time.perf_counter", "train.py")]
    makes = event("os.makedirs", "train.py", path=Value(CLOCK))
    assert is_of_another_program(makes, clocks, cast(Facts, Imports())) == other


BELOW = """\
import os
import time
import jax

def main(options):
    os.makedirs(os.path.join({folder}, time.strftime("%H%M%S")))

jax.distributed.initialize()
main(parse())
"""


@pytest.mark.parametrize(
    ("folder", "confidence"),
    [
        ("'runs'", "low"),
        ("os.path.abspath('./runs')", "low"),
        ("'/mnt/runs'", "high"),
        ("'gs://bucket/runs'", "high"),
        ("options.runs", "high"),
    ],
)
def test_a_host_of_jax_has_its_own_working_folder(folder: str, confidence: str) -> None:
    """Mostly: on a pod, none is shared."""
    found = check({"train.py": BELOW.format(folder=folder).encode()}, Settings(select=("AR107",))).findings
    assert [(one.place.line, one.confidence) for one in found] == [(6, confidence)]
