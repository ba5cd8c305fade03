"""For grain: a data set whose order is that of any number of ranks and of worker processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

import grain  # type: ignore[import-untyped]

from allranks.data.batch import Batch
from allranks.data.recipe import Recipe
from allranks.data.snapshot import Snapshot
from allranks.data.steps import StepMaker, Steps, open_steps
from allranks.errors import DataError
from allranks.world.base import World
from allranks.world.detect import current


class Batches(grain.IterDataset):  # type: ignore[misc]
    """This rank's batches of an ``allranks.Dataset``, as a grain.IterDataset: one epoch of them.

    **Every rank must make one.** ``rows`` and ``state`` are those of ``Dataset.loader``. An element is a whole batch: a
    dict of its columns and its ``mask``. With ``.mp_prefetch`` worker i of n makes every n-th step, and grain hands
    them out in the plan's order. ``state(step)`` goes on with any number of ranks and workers, and is what
    ``Dataset.loader`` takes and gives; grain's own ``get_state`` goes on with as many workers.
    """

    def __init__(
        self, data: Recipe, world: World | None = None, *, rows: object = None, state: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()
        steps, self._maker = open_steps(data, world or current(), rows=rows, state=state)
        self._steps: Steps | None = steps
        self.epoch, self._first, self._every = steps.epoch, steps.step, 1

    def __iter__(self) -> grain.DatasetIterator:
        return _Iterator(self._maker, self.epoch, self._first, self._every)

    def of_epoch(self, epoch: int) -> Batches:
        """Return the same of another epoch; the one that a state was of goes on where that stood."""
        other = copy(self)
        other._steps = self._here()
        other.epoch, other._first = epoch, other._steps.first(epoch)
        return other

    def state(self, step: int) -> Snapshot:
        """Return the state after this epoch's first ``step`` steps, those of earlier jobs included: see ``Loader``."""
        return self._here().state(self.epoch, step)

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Be the part of one of grain's workers: every n-th step."""
        del sequential_slice  # what follows each other in a worker is decided by grain's turns, not by us
        self._first, self._every = self._first + sl.start * self._every, self._every * sl.step

    def _here(self) -> Steps:
        if self._steps is None:
            raise DataError("only the process that made it knows where all ranks are.", remedy="Ask there.")
        return self._steps

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_steps": None}


class _Iterator(grain.DatasetIterator):  # type: ignore[misc]
    """The steps of one worker."""

    def __init__(self, maker: StepMaker, epoch: int, following: int, every: int) -> None:
        super().__init__()
        self._maker, self._epoch, self._next, self._every = maker, epoch, following, every
        self._made: Iterator[Batch] | None = None

    def __next__(self) -> dict[str, Any]:
        if self._made is None:
            self._made = self._maker.batches(self._epoch, self._next, every=self._every)
        batch = next(self._made)
        self._next = batch.step + self._every
        return {**batch.columns, "mask": batch.mask}

    def get_state(self) -> dict[str, int]:
        return {"epoch": self._epoch, "step": self._next}

    def set_state(self, state: Mapping[str, int]) -> None:
        self._epoch, self._next = state["epoch"], state["step"]
        self._made = None
