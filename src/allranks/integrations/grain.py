"""A data set for grain: the order of its samples does not depend on the number of ranks or worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import Any

import grain  # type: ignore[import-untyped]

from allranks.data.batch import Batch
from allranks.data.epochs import EpochTracker
from allranks.data.recipe import DatasetRecipe
from allranks.data.snapshot import Snapshot
from allranks.data.steps import LoaderSteps, StepMaker, open_steps
from allranks.errors import DataError
from allranks.world.base import World
from allranks.world.detect import current


class Batches(grain.IterDataset):  # type: ignore[misc]
    """This rank's batches of an ``allranks.Dataset``, as a grain.IterDataset. **Every rank must make one.**

    ``rows`` and ``state`` are those of ``Dataset.loader``. An element is one batch: a dict of its columns and its
    ``mask``.

    One iteration is one epoch. The next iteration, over it or its ``.mp_prefetch``, and ``.repeat`` continue with the
    next epoch. (Behind other transformations, workers are not informed of the new epoch. There, use one data set for
    each epoch: ``batches.of_epoch(epoch).map(f).mp_prefetch(options)``.)

    With ``.mp_prefetch``, worker i of n prepares every n-th step, and grain yields the steps in the plan's order.
    ``state(step)`` can be resumed with any number of ranks and workers, and is compatible with ``Dataset.loader``.
    grain's own ``get_state`` can be resumed with any number of ranks, but only with the same number of workers.
    """

    def __init__(
        self,
        data: DatasetRecipe,
        world: World | None = None,
        *,
        rows: object = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        steps, self._maker = open_steps(data, world or current(), rows=rows, state=state)
        self._steps: LoaderSteps | None = steps
        self._epochs = EpochTracker(len(steps), steps.epoch, steps.step)
        self._fixed: tuple[int, int] | None = None
        self._start, self._every = 0, 1

    @property
    def epoch(self) -> int:
        """The number of the epoch that the loop is in, from 0 on.

        Before the first iteration of a resumed program, it is the epoch in which that program continues.
        """
        return self._fixed[0] if self._fixed else self._epochs.epoch

    def __iter__(self) -> grain.DatasetIterator:
        epoch, begin = self._fixed or self._epochs.next_iteration()
        made = _WorkerIterator(self._maker, epoch, begin, (self._start, self._every))
        if self._fixed is None:
            self._epochs.begin_iteration(lambda: made.taken)
        return made

    def mp_prefetch(self, *args: Any, **how: Any) -> grain.IterDataset:
        """Return a data set whose elements grain's worker processes prepare; see ``grain.IterDataset.mp_prefetch``."""
        return _PrefetchedBatches(self, lambda fixed: grain.IterDataset.mp_prefetch(fixed, *args, **how))

    def of_epoch(self, epoch: int) -> Batches:
        """Return the batches of one epoch. For the epoch of the loaded state, they begin at the state's position."""
        return self._at(epoch, self._here().first_step(epoch))

    def state(self, step: int) -> Snapshot:
        """Return the state after this epoch's first ``step`` steps, including those of earlier jobs: see ``Loader``."""
        epoch = self._fixed[0] if self._fixed else self._epochs.epoch_after_step(step)
        return self._here().state(epoch, step)

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Restrict this data set to the part of one of grain's workers: every n-th step. grain calls this."""
        del sequential_slice  # what follows each other in a worker is decided by grain's turns, not by us
        self._start, self._every = self._start + sl.start * self._every, self._every * sl.step

    def _at(self, epoch: int, begin: int) -> Batches:
        other = copy(self)
        other._steps, other._fixed = self._steps, (epoch, begin)
        return other

    def _here(self) -> LoaderSteps:
        if self._steps is None:
            raise DataError(
                "state: this copy of the loader is in a worker process, which does not know the "
                "positions of all ranks.",
                remedy="Call state() in the process that made the loader.",
            )
        return self._steps

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_steps": None}


class _PrefetchedBatches(grain.IterDataset):  # type: ignore[misc]
    """The batches of a ``Batches``, made by worker processes. The main process begins each epoch here."""

    def __init__(self, batches: Batches, prefetch: Callable[[Batches], grain.IterDataset]) -> None:
        super().__init__(batches)
        self._batches, self._prefetch = batches, prefetch

    def __iter__(self) -> grain.DatasetIterator:
        one = self._batches
        place = one._fixed or one._epochs.next_iteration()
        made = _CountingIterator(iter(self._prefetch(one._at(*place))))
        if one._fixed is None:
            one._epochs.begin_iteration(lambda: made.taken)
        return made


class _CountingIterator(grain.DatasetIterator):  # type: ignore[misc]
    """An iterator that counts the elements that it has yielded."""

    def __init__(self, inner: grain.DatasetIterator) -> None:
        super().__init__(inner)
        self.taken = 0

    def __next__(self) -> dict[str, Any]:
        found: dict[str, Any] = next(self._parent)
        self.taken += 1
        return found

    def get_state(self) -> Any:
        return {"taken": self.taken, "inner": self._parent.get_state()}

    def set_state(self, state: Any) -> None:
        if "inner" in state:
            self.taken = state["taken"]
        self._parent.set_state(state.get("inner", state))


class _WorkerIterator(grain.DatasetIterator):  # type: ignore[misc]
    """The steps of one worker: every ``every``-th step of an epoch, from step ``begin + start`` on.

    Its state is the number of steps taken, not a step number. grain may take the state of the complete data set for a
    worker that has yielded nothing. This state is then right in that worker, too.
    """

    def __init__(self, maker: StepMaker, epoch: int, begin: int, part: tuple[int, int]) -> None:
        super().__init__()
        self._maker, self._epoch, self._begin, (self._start, self._every) = maker, epoch, begin, part
        self.taken = 0
        self._ended = False
        self._made: Iterator[Batch] | None = None

    def __next__(self) -> dict[str, Any]:
        if self._made is None:
            following = self._begin + self._start + self.taken * self._every
            self._made = self._maker.make_batches(self._epoch, following, stride=self._every)
        batch = next(self._made, None)
        if batch is None:
            self._ended = True
            raise StopIteration
        self.taken += 1
        return {**batch.columns, "mask": batch.mask}

    def get_state(self) -> dict[str, int]:
        return {"epoch": self._epoch, "begin": self._begin, "taken": self.taken}

    def set_state(self, state: Mapping[str, int]) -> None:
        ended, epoch = self._ended, self._epoch
        self._epoch, self._made, self._ended = state["epoch"], None, False
        if "step" in state:  # of earlier versions: the next step; or, of a worker that had none, the data set's first
            steps = state["step"] - self._begin - self._start
            self.taken = max(steps, 0) // self._every
            return
        self._begin, self.taken = state["begin"], state["taken"]
        if ended and not self.taken:  # grain's repeat goes back to where it began, and means the next epoch
            self._epoch, self._begin = epoch + 1, 0
