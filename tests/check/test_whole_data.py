"""Loaders that give each process all data: never prepared, beside a sampler that nobody reads, by a share alone."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check


def lines(source: str) -> list[int]:
    findings = check({"train.py": source.encode()}, Settings(select=("AR301",))).findings
    return [finding.place.line for finding in findings]


def test_horovod_averages_what_each_process_has_of_all_rows() -> None:
    """Its optimizer is what wraps the model, and splits no data."""
    train = """\
import horovod.torch as hvd
from torch.utils.data import DataLoader

optimizer = hvd.DistributedOptimizer(make(model))
loader = DataLoader(rows, shuffle=True)
"""
    sampled = train.replace("shuffle=True", "sampler=data.DistributedSampler(rows, hvd.size(), hvd.rank())")
    for text, lines in ((train, [5]), (sampled, [])):
        findings = check({"train.py": text.encode()}, Settings(select=("AR301",))).findings
        assert [one.place.line for one in findings] == lines


PARTED = """\
import torch.distributed as dist
from monai.data import CacheDataset, DataLoader, partition_dataset
from torch.nn.parallel import DistributedDataParallel as DDP


def train(rows, model):
    dist.init_process_group("nccl")
    world, rank = dist.get_world_size(), dist.get_rank()
    {part}
    loader = DataLoader(CacheDataset(rows), batch_size=2, shuffle=True)
    model = DDP(model)
    for batch in loader:
        model(batch).backward()


train(files(), net())
"""


@pytest.mark.parametrize(
    ("part", "found"),
    [("rows = partition_dataset(data=rows, num_partitions=world)[rank]", []), ("rows = first(data=rows)", [10])],
)
def test_monai_parts_data_before_it_is_loaded(part: str, found: list[int]) -> None:
    """Each process takes its place in the list of parts."""
    findings = check({"a.py": PARTED.format(part=part).encode()}, Settings(select=("AR301",))).findings
    assert [finding.place.line for finding in findings] == found
