"""A sampler that shuffles because a call says so shuffles as one that says so itself."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TRAIN = """\
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def build_loader(ds, bs, {parameter}):
    {first}
    sampler = DistributedSampler(ds, shuffle={shuffle})
    return DataLoader(ds, bs, sampler=sampler)


def main(ds, args, step):
    dist.init_process_group("nccl")
    loader = build_loader(ds, 32, {given})
    held = build_loader(args.held, 32, {held})
    for epoch in range(30):
        for batch in loader:
            step(batch)
"""


def found(parameter: str, shuffle: str, given: str, held: str = "args.held", first: str = "pass") -> list[str]:
    source = TRAIN.format(parameter=parameter, shuffle=shuffle, given=given, held=held, first=first)
    findings = check({"train.py": source.encode()}, Settings(select=("AR302",))).findings
    return [one.confidence for one in findings if one.place.line == 7]


@pytest.mark.parametrize(
    ("parameter", "shuffle", "given"),
    [
        ("flag", "flag", "args.flag"),
        ("flag", "flag", "False"),
        ("frozen", "not frozen", "True"),
        ("split", 'split == "first"', "args.split"),
        ("split", 'split != "val"', '"val"'),
    ],
)
def test_a_setting_that_nobody_knows_leaves_it_open(parameter: str, shuffle: str, given: str) -> None:
    """Confidence is low."""
    assert found(parameter, shuffle, given) == ["low"]


def test_a_call_that_wants_no_sampler_does_not_decide() -> None:
    """The loader of one process alone shuffles; the dealt one is told not to."""
    source = TRAIN.format(
        parameter="flag, dealt", shuffle="flag", given="flag=True, dealt=False", held="True", first=""
    )
    source = source.replace("    sampler =", "    sampler = None\n    if dealt:\n        sampler =")
    source = source.replace("args.held, 32, True", "args.held, 32, flag=False, dealt=True")
    findings = check({"train.py": source.encode()}, Settings(select=("AR302",))).findings
    assert [one.confidence for one in findings] == ["low"]
