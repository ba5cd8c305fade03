"""Means of held-out data that another file of the program deals out: AR310."""

from __future__ import annotations

from allranks.check.engine import Settings, check

EVALUATE = """\
import torch.distributed as dist
{imported}


def run_epoch(model, train_loader, val_loader):
    for batch in train_loader:
        model(batch).backward()
    total = 0
    for batch in val_loader:
        total += model(batch).item()
    {behind}


def summed(loss):
    dist.all_reduce(loss)
    return loss


def main(model, rows):
    dist.init_process_group("nccl")
    run_epoch(model, data.setup(rows), data.setup(rows))


main(1, 2)
"""
DATA = """\
from torch.utils.data import DataLoader, DistributedSampler


def setup(rows, workers=0, several=True, kind="a"):
    sampler = DistributedSampler(rows, shuffle=workers.shuffle) if {test} else None
    return DataLoader(rows, sampler=sampler)


def held_out(rows):
    val_loader = setup(rows)
    return val_loader
"""


def lines(evaluate: str, test: str) -> list[int]:
    sources = {
        "train.py": evaluate.encode(),
        "data/__init__.py": b"from data.loading import setup\n",
        "data/loading.py": DATA.format(test=test).encode(),
    }
    findings = check(sources, Settings(select=("AR310",))).findings
    return [finding.place.line for finding in findings]


def test_who_refuses_several_processes_evaluates_all_of_the_data() -> None:
    """Its loader deals out where there are several, and there never are."""
    evaluate = EVALUATE.format(imported="import data", behind="return total / len(val_loader)")
    alone = 'def main(model, rows, rank):\n    if rank != -1:\n        raise ValueError("one process")\n'
    assert lines(evaluate.replace("def main(model, rows):\n", alone), "several") == []
