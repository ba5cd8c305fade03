"""What a process adds up over its part of the validation data is its own score, whatever it is called."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TRAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def main(ds, held, optimizer):
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(4, 4))
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=8, sampler=sampler)
    {sampler}
    best, patience = 1e9, 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x in loader:
            model(x).mean().backward()
            optimizer.step()
        vl = 0.0
        with torch.no_grad():
            for x in val:
                vl += model(x).mean().item()
        {told}
        if vl < best:
            best, patience = vl, 0
            {better}
        else:
            patience += 1
        if patience >= 3:
            break
"""
DEALT = "val = DataLoader(held, batch_size=8, sampler=DistributedSampler(held, shuffle=False))"


def found(sampler: str = DEALT, told: str = "pass", better: str = "pass") -> list[tuple[str, int, str]]:
    source = TRAIN.format(sampler=sampler, told=told, better=better)
    findings = check({"train.py": source.encode()}, Settings(select=("AR203", "AR209"))).findings
    return [(one.code, one.place.line, one.confidence) for one in findings]


@pytest.mark.parametrize(
    "sampler", [DEALT, f"part = DistributedSampler(held)\n    {DEALT.partition('sampler')[0]}sampler=part)"]
)
def test_who_stops_by_its_own_sum_leaves_the_others(sampler: str) -> None:
    """The sampler stands in the call of the loader, or before it."""
    late = sampler.count("\n")
    assert found(sampler) == [("AR209", 29 + late, "high")]


def test_a_collective_by_ones_own_sum_is_not_met_by_all() -> None:
    """Where the model has got better."""
    assert ("AR203", 26, "high") in found(better="dist.barrier()")


@pytest.mark.parametrize(
    ("sampler", "told"),
    [
        ("val = DataLoader(held, batch_size=8)", "pass"),
        (DEALT, "vl = mean_over_ranks(vl)"),
        (DEALT, "vl = torch.tensor(vl); dist.all_reduce(vl)"),
    ],
)
def test_a_sum_that_all_have_alike_is_none(sampler: str, told: str) -> None:
    """Nothing is dealt out, or it is reduced."""
    assert found(sampler, told) == []
