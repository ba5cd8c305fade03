"""In grain, with and without worker processes, the batches are those of our plan, and resume with another world."""

from __future__ import annotations

from itertools import islice
from typing import Any

import grain
import numpy as np
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


def test_batches_are_those_of_the_plan_in_every_epoch() -> None:
    """On two ranks, then on one in the next epoch: the global batches of our own loader."""
    made = on(2, lambda world: Batches(numbers(), world))
    assert together([list(map(rows, iterate(batches, 0))) for batches in made]) == reference()
    alone = on(1, lambda world: Batches(numbers(), world))[0].of_epoch(1)
    assert list(map(rows, iterate(alone, 0))) == reference(1)


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
