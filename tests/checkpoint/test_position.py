"""From which step a training goes on, told by the steps that it restores and comes to."""

from __future__ import annotations

from typing import Any

import pytest

from allranks.checkpoint.position import TrainingPosition

# What is done in order: a step restored, or come to with the step that it was at before.
STORIES: dict[str, tuple[list[Any], int | None]] = {
    "anew": ([("come", 1, None), ("come", 2, 1)], None),
    "resumed": ([("restore", 30), ("come", 31, 30)], 30),
    "resumed far": ([("restore", 30), ("come", 40, 30)], 30),
    "an older step": ([("restore", 10), ("come", 11, 10)], 10),
    "a look before it begins": ([("restore", 30), ("restore", 10), ("come", 31, 30)], 30),
    "a look in between": ([("come", 30, None), ("restore", 10), ("come", 31, 30)], None),
    "a look at the last": ([("come", 30, None), ("restore", 30), ("come", 31, 30)], 30),
    "back after it diverged": ([("come", 35, None), ("restore", 10), ("come", 11, 10)], 10),
    "back, with a look before": ([("come", 35, None), ("restore", 30), ("restore", 20), ("come", 21, 20)], 20),
    "back twice": ([("restore", 30), ("come", 35, 30), ("restore", 10), ("come", 11, 10)], 10),
    "before all": ([("restore", 30), ("come", 5, None), ("come", 6, 5)], None),
    "the same step": ([("restore", 10), ("come", 10, 10), ("come", 11, 10)], 10),
}


@pytest.mark.parametrize("story", STORIES)
def test_a_story(story: str) -> None:
    position = TrainingPosition()
    events, resumed = STORIES[story]
    for what, step, *before in events:
        if what == "restore":
            position.note_restore(step, {"loss": step})
        else:
            assert [position.advance_to(step)] == before
    assert position.resumed == resumed


def test_recorded_metrics_are_those_of_the_step_that_is_resumed_and_told_once() -> None:
    position = TrainingPosition()
    for step in (30, 10):
        position.note_restore(step, {"loss": step})
    assert position.take_recorded_metrics() == {"loss": 30}
    position.advance_to(31)
    assert position.take_recorded_metrics() is None
    position.note_restore(10, {"loss": 10})
    assert position.take_recorded_metrics() is None, "a look, as far as is known"
    position.advance_to(11)
    assert position.take_recorded_metrics() == {"loss": 10}
    assert position.take_recorded_metrics() is None
