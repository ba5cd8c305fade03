"""Provide a data set and a sampler for torch.utils.data.DataLoader.

Their order does not depend on the number of ranks or workers. Both know when an epoch begins, with or without
``set_epoch``: the rules are in ``allranks.data.epochs``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import index
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, Sampler, get_worker_info

from allranks.data.batch import Batch
from allranks.data.epochs import EpochTracker
from allranks.data.index import DECODE_ERRORS
from allranks.data.plan import EpochPlan, Tail, choose_layout
from allranks.data.recipe import DatasetRecipe
from allranks.data.snapshot import Snapshot
from allranks.data.sources.sequence import Indexable, sequence
from allranks.data.start import sample_facts
from allranks.data.steps import LoaderSteps, StepMaker, open_steps
from allranks.errors import DataError
from allranks.integrations import prepared
from allranks.integrations.dataloader import EpochReader
from allranks.world.base import World
from allranks.world.detect import current

__all__ = ["BatchSampler", "Batches", "Snapshot"]

prepared.patch_accelerate()


class Batches(EpochReader, IterableDataset[dict[str, Any]]):
    """This rank's batches of an ``allranks.Dataset``: ``DataLoader(Batches(data, world), batch_size=None)``.

    **Every rank must make one.** ``rows`` and ``state`` are those of ``Dataset.loader``. An item is one batch, as
    ``Batch.to_torch()`` returns it, with its mask. Worker i of n prepares every n-th step, so the DataLoader yields the
    steps in the plan's order, with any number of workers. Each worker decodes its own steps, and reads the blocks that
    they share with other steps. Without workers, ``data.loader(world)`` does the same, and also audits each epoch; this
    class does not. A trainer that accepts any iterable (Lightning) needs no DataLoader around it.

    ``state()``, and ``state_dict()`` in the process that made this object, can be resumed with any number of ranks and
    workers. As part of a Checkpointer's state or a Lightning checkpoint, it is saved and loaded without further code.
    In a worker, ``state_dict()`` is for torchdata's StatefulDataLoader. It can be resumed with any number of ranks, but
    only with the same number of workers.
    """

    def __init__(
        self,
        data: DatasetRecipe,
        world: World | None = None,
        *,
        rows: object = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        steps, self._maker = open_steps(data, world or current(), rows=rows, state=state)
        self._steps: LoaderSteps | None = steps
        self._place = torch.zeros(2, dtype=torch.int64)
        self._place.share_memory_()  # type: ignore[no-untyped-call]  # so that workers see which epoch begins
        self._epochs = EpochTracker(len(steps), steps.epoch, steps.step, place=self._place)
        self._length = len(steps)
        self._begun_by_loader = False
        self._reading: _EpochReading | None = None
        self._loaded: Mapping[str, int] | None = None  # of the worker in whose process this is

    def __len__(self) -> int:
        """Return the number of steps of a complete epoch; it is equal on every rank."""
        return self._length

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        self._reading = self._reading_of_worker(worker.id, worker.num_workers) if worker else self._of_process()
        return self._reading

    def state_dict(self) -> dict[str, int]:
        """Return the position of the training loop, equal on all ranks; in a worker of a DataLoader, its position."""
        if get_worker_info() is not None and self._reading is not None:
            one = self._reading
            return {"epoch": one.epoch, "step": one.step, "workers": one.every, "begin": one.begin}
        epoch, step = self._epochs.current_position()
        return {"epoch": epoch, "step": step, "workers": 1, "begin": self._epochs.first_step(epoch)}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue at the position of a ``state_dict``. Call it in the same worker, or in the process that made this.

        Raises DataError if the number of workers has changed.
        """
        try:
            epoch, step, workers = (_position(state[name]) for name in ("epoch", "step", "workers"))
        except DECODE_ERRORS as error:
            raise _no_position_error(state, error) from error
        worker = get_worker_info()
        here = worker.num_workers if worker else 1
        if workers != here:
            raise DataError(
                f"a state_dict of a loader with {workers} workers cannot be loaded by a loader with {here}.",
                remedy="Use the same num_workers; or store state() in checkpoints, which works with any number of "
                "workers.",
            )
        if worker:
            self._loaded = state
            self._place[0], self._place[1] = epoch, state.get("begin", int(self._place[1]))
            return
        self._begun_by_loader = False
        self._epochs.set_position(epoch, step)
        if self._steps is not None:
            self._steps.continue_after(epoch, step)

    def _reading_of_worker(self, number: int, workers: int) -> _EpochReading:
        """Return the iterator over a worker's part of the iteration that the main process has begun."""
        epoch, begin = self._place.tolist()
        loaded, self._loaded = self._loaded, None
        step = begin + number if loaded is None else loaded["step"]
        return _EpochReading(self._maker, epoch, begin, step, workers)

    def _of_process(self) -> _EpochReading:
        if self._begun_by_loader:
            epoch, begin = self._epochs.iteration_start
        else:
            epoch, begin = self._epochs.next_iteration()
        reading = _EpochReading(self._maker, epoch, begin, begin, 1)
        if not self._begun_by_loader:
            self._epochs.begin_iteration(lambda: reading.step - begin)
        self._begun_by_loader = False
        return reading

    def _begin(self, taken: Any, *, in_process: bool) -> None:
        self._epochs.begin_iteration(taken)
        self._begun_by_loader = in_process

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_reading": None}


class _EpochReading(Iterator[dict[str, Any]]):
    """The batches of every ``every``-th step from ``step`` on, in an iteration that began with step ``begin``."""

    def __init__(self, maker: StepMaker, epoch: int, begin: int, step: int, every: int) -> None:
        self._maker, self.epoch, self.begin, self.step, self.every = maker, epoch, begin, step, every
        self._made: Iterator[Batch] | None = None

    def __next__(self) -> dict[str, Any]:
        if self._made is None:
            self._made = self._maker.make_batches(self.epoch, self.step, stride=self.every)
        batch = next(self._made)
        self.step = batch.step + self.every
        return batch.to_torch()


class BatchSampler(EpochReader, Sampler[list[int]]):
    """The numbers of this rank's samples, batch by batch: ``DataLoader(dataset, batch_sampler=BatchSampler(...))``.

    **Every rank must make one.** It replaces DistributedSampler. Every sample of ``samples`` is used once, over all
    ranks. The global batches are the same on any number of ranks that divides ``global_batch``, also if the number
    changes on a resume. A sampler can only say which samples to take. So rows behind the last sample repeat sample 0,
    and ``mask(step)`` says which rows these are; ``tail="drop"`` leaves the last batch out. In torchdata's
    StatefulDataLoader, its states can be resumed with any number of ranks.
    """

    def __init__(
        self,
        samples: int | Indexable,
        world: World | None = None,
        *,
        global_batch: int,
        seed: int = 0,
        shuffle: bool = True,
        tail: Tail = "pad",
        state: Mapping[str, Any] | None = None,
    ) -> None:
        source = sequence(range(samples) if isinstance(samples, int) else samples)
        index = source.index()
        how = choose_layout(index, global_batch=global_batch, seed=seed, shuffle=shuffle, streams=1, tail=tail)
        of = world or current()
        compared = {} if isinstance(samples, int) else sample_facts([source], of)
        steps = LoaderSteps(lambda epoch: EpochPlan(index, how, epoch), of, rows=None, state=state, compared=compared)
        self._steps: LoaderSteps | None = steps
        self._epochs = EpochTracker(len(steps), steps.epoch, steps.step)

    def __len__(self) -> int:
        """Return the number of batches of a complete epoch; it is equal on every rank."""
        return len(self._here())

    def __iter__(self) -> Iterator[list[int]]:
        order = _EpochOrder(self)
        self._start(order)
        return order

    def mask(self, step: int) -> list[bool]:
        """Return, for each row of a step of this epoch, whether it is a sample (True) or repeats sample 0 (False)."""
        kept: list[bool] = (self._ids(self.epoch, step) >= 0).tolist()
        return kept

    def _ids(self, epoch: int, step: int) -> Any:
        steps = self._here()
        return steps.plan(epoch).row_ids(steps.rows, step, step + 1)[0]

    def _move_to(self, order: _EpochOrder, epoch: int, step: int) -> None:
        """Move an iteration, and the sampler, to the position of a saved state."""
        self._here().continue_after(epoch, step)
        self._epochs.set_position(epoch, step)
        self._start(order)

    def _start(self, order: _EpochOrder) -> None:
        # A DataLoader with workers begins two iterations, and takes its batches from the second.
        order.epoch, begin = self._epochs.begin_iteration(lambda: order.step - begin, lambda: order.asked)
        order.step = begin


class _EpochOrder(Iterator[list[int]]):
    """The batches of an epoch, from a step on. Its ``state_dict`` is for torchdata's StatefulDataLoader."""

    epoch = step = 0
    asked = False

    def __init__(self, sampler: BatchSampler) -> None:
        self._sampler = sampler

    def __next__(self) -> list[int]:
        self.asked = True
        if self.step >= len(self._sampler):
            raise StopIteration
        found: list[int] = np.maximum(self._sampler._ids(self.epoch, self.step), 0).tolist()
        self.step += 1
        return found

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "step": self.step}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        try:
            epoch, step = _position(state["epoch"]), _position(state["step"])
        except DECODE_ERRORS as error:
            raise _no_position_error(state, error) from error
        self._sampler._move_to(self, epoch, step)


def _position(value: object) -> int:
    """Return a number of a state. Raises TypeError or ValueError for a value that is no position."""
    number = index(value)  # type: ignore[arg-type]
    if number < 0:
        raise ValueError(f"{number} is below 0")
    return number


def _no_position_error(state: object, error: Exception) -> DataError:
    return DataError(
        f"load_state_dict: {state!r:.200} has no position: {type(error).__name__}: {error}.", remedy="Begin anew."
    )
