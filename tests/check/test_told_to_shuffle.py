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
    ("parameter", "shuffle", "given", "held"),
    [
        ("flag", "flag", "True", "False"),
        ("flag=False", "flag", "flag=True", "flag=False"),
        ("frozen", "not frozen", "False", "True"),
        ("split", 'split == "train"', '"train"', '"val"'),
    ],
)
def test_a_call_that_passes_the_constant_decides(parameter: str, shuffle: str, given: str, held: str) -> None:
    """It need not be the only call: one of its loaders shuffles."""
    assert found(parameter, shuffle, given, held) == ["high"]


def test_a_constant_that_goes_through_a_variable_decides() -> None:
    """The parameter has another name in the function."""
    assert found("flag", "mixed", "True", "False", first="mixed = flag") == ["high"]


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


@pytest.mark.parametrize(
    ("parameter", "shuffle"),
    [
        ("split", 'split == "train"'),
        ("is_training", "is_training"),
        ("validate", "not validate"),
        ("mixed=True, *more", "mixed"),
    ],
)
def test_a_setting_that_asks_for_training_or_is_true_by_default_shuffles(parameter: str, shuffle: str) -> None:
    """Whatever this file passes: there is training somewhere."""
    source = TRAIN.format(parameter=parameter, shuffle=shuffle, given="*args.more", held="*args.more", first="pass")
    source = source.replace("ds, 32,", "ds,").replace("args.held, 32,", "args.held,")
    findings = check({"train.py": source.encode()}, Settings(select=("AR302",))).findings
    assert [one.confidence for one in findings] == ["high"]


def test_a_call_that_wants_no_sampler_does_not_decide() -> None:
    """The loader of one process alone shuffles; the dealt one is told not to."""
    source = TRAIN.format(
        parameter="flag, dealt", shuffle="flag", given="flag=True, dealt=False", held="True", first=""
    )
    source = source.replace("    sampler =", "    sampler = None\n    if dealt:\n        sampler =")
    source = source.replace("args.held, 32, True", "args.held, 32, flag=False, dealt=True")
    findings = check({"train.py": source.encode()}, Settings(select=("AR302",))).findings
    assert [one.confidence for one in findings] == ["low"]


LOOP = """\
def infinite(loader):
    {again}
        {given}


def run(step, loader):
    batches = infinite(loader)
    for it in range(90_000):
        step(next(batches))
"""
ONCE = """\
import torch.distributed as dist
from loop import run
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("nccl")
loader = DataLoader(rows, 32, sampler=DistributedSampler(rows))
run(lambda batch: model(batch).backward(), loader)
"""


@pytest.mark.parametrize(
    ("again", "given", "lines"),
    [
        ("while True:", "yield from loader", [6]),
        ("while True:", "for batch in loader: yield batch", [6]),
        ("while True:", "yield make()", []),
        ("if loader:", "yield from loader", []),
    ],
)
def test_a_program_that_counts_no_epochs_may_begin_again(again: str, given: str, lines: list[int]) -> None:
    """Its loader begins each time with the order of the first."""
    sources = {"train.py": ONCE.encode(), "loop.py": LOOP.format(again=again, given=given).encode()}
    findings = check(sources, Settings(select=("AR302",))).findings
    assert [one.place.line for one in findings] == lines


@pytest.mark.parametrize(("setting", "confidence"), [("not opt.serial", "high"), ("opt.shuffle", "low")])
def test_a_setting_that_is_denied_is_off_by_default(setting: str, confidence: str) -> None:
    """Who shuffles unless he is told otherwise shuffles."""
    assert found("more=None", setting, "None") == [confidence]
