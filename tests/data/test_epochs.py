"""Which epoch an iteration of somebody else's loop reads, and from which step."""

from __future__ import annotations

import pytest

from allranks.data.epochs import EpochTracker


@pytest.mark.parametrize(
    ("step", "taken", "asked", "place"),
    [
        pytest.param(2, 4, True, (1, 0), id="the rest was read"),
        pytest.param(2, 1, True, (0, 2), id="a look"),
        pytest.param(2, 0, False, (0, 2), id="begun and left"),
        pytest.param(6, 0, True, (1, 0), id="nothing was left"),
        pytest.param(6, 0, False, (0, 6), id="a loader with workers begins twice, and asks the second"),
    ],
)
def test_an_iteration_is_followed_by_the_next_epoch_unless_it_was_a_look(
    step: int, taken: int, asked: bool, place: tuple[int, int]
) -> None:
    epochs = EpochTracker(6, 0, step)
    epochs.set_epoch(0)
    assert epochs.begin_iteration(lambda: taken, lambda: asked) == (0, step)
    assert epochs.next_iteration() == place
