"""In grain, with and without worker processes, the batches are those of our plan, and resume with another world."""

from __future__ import annotations

from copy import copy
from itertools import islice, zip_longest
from typing import Any

import grain
import numpy as np
import pytest
from absl import flags
from worlds import numbers, on, reference, together

from allranks import World
from allranks.integrations.grain import Batches

flags.FLAGS.mark_as_parsed()  # grain's worker processes take the flags of the program that started them


def rows(batch: dict[str, Any]) -> list[int]:
    assert np.array_equal(batch["square"], batch["x"] ** 2)
    found: list[int] = np.where(batch["mask"], batch["x"], -1).tolist()
    return found


def iterate(batches: Batches, workers: int) -> grain.DatasetIterator:
    return iter(batches.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(workers)) if workers else batches)


def test_states_that_grain_takes_before_a_worker_has_begun() -> None:
    """They are of the data set as a whole, and each worker is given the same: it goes on with its own steps."""
    batches = on(1, lambda world: Batches(numbers(), world))[0]
    states = [iter(batches).get_state(), {"epoch": 0, "step": 0}]  # the second: of an earlier version
    for state in states:
        found: list[list[list[int]]] = []
        for worker in range(2):
            part = copy(batches)
            part.set_slice(slice(worker, None, 2))
            made = iter(part)
            made.set_state(state)
            found.append([rows(batch) for batch in made])
        assert [step for steps in zip_longest(*found) for step in steps if step] == reference()


@pytest.mark.soak
def test_states_go_on_with_other_ranks_and_with_workers() -> None:
    """Four steps on three ranks; five on one with two workers; the rest from grain's own state of these."""

    def stop(world: World) -> Any:
        batches = Batches(numbers(), world)
        return list(map(rows, islice(iterate(batches, 0), 4))), batches.state(4).gathered()

    stopped = on(3, stop)
    state = stopped[0][1]
    batches = on(1, lambda world: Batches(numbers(), world, state=state))[0]
    first = iterate(batches, 2)
    begun = list(map(rows, islice(first, 5)))
    second = iterate(batches, 2)
    second.set_state(first.get_state())
    assert together([taken for taken, _ in stopped]) + begun + list(map(rows, second)) == reference()
