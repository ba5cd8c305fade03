"""Data sets that the file of their class loads itself: no sampler of another file deals them out (AR307)."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

DATA = """import glob
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, root):
        self.files = glob.glob(root + "/*.png")

    def __getitem__(self, i):
        return self.files[i]


def loader(root, sampler=None):
    photos = Photos(root)
    return DataLoader(photos, 1{given})
"""
TRAIN = """# torchrun --nnodes=4 --nproc-per-node=8 train.py
import torch.distributed as dist
from data import {name}
from torch.utils.data import DistributedSampler

dist.init_process_group("nccl")
sampler = DistributedSampler({rows})
held_out = {name}("held_out")
"""


@pytest.mark.parametrize(
    ("given", "name", "rows", "found"),
    [
        ("", "loader", "[]", []),
        (", sampler=sampler", "loader", "[]", ["AR307"]),
        ("", "Photos", 'Photos("all")', ["AR307"]),
    ],
)
def test_what_its_own_file_loads_is_dealt_out_by_nobody(given: str, name: str, rows: str, found: list[str]) -> None:
    """It is where the loader takes a sampler, or where another file makes the data set too."""
    sources = {"data.py": DATA.format(given=given).encode(), "train.py": TRAIN.format(name=name, rows=rows).encode()}
    assert [f.code for f in check(sources, Settings(select=("AR307",))).findings] == found
