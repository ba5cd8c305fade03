"""A sampler that is told its epoch once, before all of them: AR302."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TRAIN = """\
def fit(trainer, train_loader, step, epochs):
    {first}
    for epoch in range(epochs):
        {each}
        for batch in {over}:
            step(batch)
"""
ONCE = "train_loader.sampler.set_epoch(0)"


def lines(source: str) -> list[int]:
    findings = check({"train.py": source.encode()}, Settings(select=("AR302",))).findings
    return [finding.place.line for finding in findings]


@pytest.mark.parametrize(
    ("first", "each", "over", "found"),
    [
        (ONCE, "pass", "train_loader", [2]),
        (ONCE, "train_loader.sampler.set_epoch(epoch)", "train_loader", []),
        ("pass", "train_loader.sampler.set_epoch(epoch)", "train_loader", []),
        (ONCE, "pass", "batches(trainer, epoch)", []),
        ("train_loader.dataset.set_epoch(0)", "pass", "train_loader", []),
    ],
)
def test_an_epoch_that_is_told_before_the_loop_is_that_of_all(
    first: str, each: str, over: str, found: list[int]
) -> None:
    """The loop goes over the loader itself, and nothing else of the file tells an epoch."""
    assert lines(TRAIN.format(first=first, each=each, over=over)) == found


@pytest.mark.parametrize(("run", "found"), [("max_epochs=9", [2]), ("epoch_length=9", [])])
def test_a_trainer_that_runs_all_epochs_is_a_loop(run: str, found: list[int]) -> None:
    """A library's loop begins behind it."""
    told = "loader.sampler.set_epoch(trainer.state.epoch)"
    assert lines(f"def fit(trainer, loader):\n    {told}\n    trainer.run(loader, {run})\n") == found
