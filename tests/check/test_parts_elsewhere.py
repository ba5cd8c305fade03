"""Means of held-out data that another file of the program deals out: AR310."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize(
    ("test", "behind", "found"),
    [
        ("several", "return total / len(val_loader)", [11]),
        ("several", "return summed(total) / len(val_loader)", []),
        ("kind == 'train'", "return total / len(val_loader)", []),
        ("workers.shuffle", "return total / len(val_loader)", []),
    ],
)
def test_a_function_of_a_package_deals_out_what_it_is_given(test: str, behind: str, found: list[int]) -> None:
    """Only a condition on what the data is for leaves held-out data whole; another function of the file may reduce."""
    evaluate = EVALUATE.format(imported="import data", behind=behind)
    assert lines(evaluate, test) == found
    assert (
        lines(
            evaluate.replace("data.setup(rows)", "setup(rows)").replace("import data", "from data import setup"), test
        )
        == found
    )


def test_who_refuses_several_processes_evaluates_all_of_the_data() -> None:
    """Its loader deals out where there are several, and there never are."""
    evaluate = EVALUATE.format(imported="import data", behind="return total / len(val_loader)")
    alone = 'def main(model, rows, rank):\n    if rank != -1:\n        raise ValueError("one process")\n'
    assert lines(evaluate.replace("def main(model, rows):\n", alone), "several") == []


@pytest.mark.parametrize(
    "made",
    ["DataLoader(rows, 8)", "DataLoader(rows, 8, sampler=SequentialSampler(rows))"],
)
def test_a_loader_that_is_seen_to_read_all_is_no_part(made: str) -> None:
    """Whatever else is dealt out in the program, this file shows the loader."""
    evaluate = EVALUATE.format(
        imported="import data\nfrom torch.utils.data import DataLoader, SequentialSampler",
        behind="return total / len(val_loader)",
    )
    assert lines(evaluate, "several") == [12]
    assert lines(evaluate.replace("data.setup(rows))", f"{made})"), "several") == []
