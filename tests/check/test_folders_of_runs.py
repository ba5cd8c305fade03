"""A folder that each rank calls after its own clock is told once, where it is made, not at each file in it."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

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
