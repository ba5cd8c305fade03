"""For torch.utils.data.DataLoader: a data set, and a sampler, whose order is that of any number of ranks and workers.

Both begin an epoch with ``set_epoch(epoch)``. A DataLoader asks its workers for more than it has handed out, so what
was taken only the training loop knows: ``state(step)`` is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, Sampler, get_worker_info

from allranks.data.plan import EpochPlan, Tail, layout
from allranks.data.recipe import Recipe
from allranks.data.snapshot import Snapshot
from allranks.data.sources.sequence import sequence
from allranks.data.steps import Steps, open_steps
from allranks.errors import DataError
from allranks.world.base import World
from allranks.world.detect import current


class Batches(IterableDataset[dict[str, Any]]):
    """This rank's batches of an ``allranks.Dataset``: ``DataLoader(Batches(data, world), batch_size=None)``.

    **Every rank must make one.** ``rows`` and ``state`` are those of ``Dataset.loader``. An item is a whole batch, as
    ``Batch.to_torch()`` gives it, with its mask. Worker i of n makes every n-th step, so that the DataLoader hands them
    out in the plan's order, however many there are; each decodes its own steps, and reads what they share. Without
    workers, ``data.loader(world)`` does the same and proves it, which nobody does here.

    ``state(step)`` goes on with any number of ranks and workers; ``state_dict`` is what torchdata's
    StatefulDataLoader wants, and goes on with as many workers.
    """

    def __init__(
        self, data: Recipe, world: World | None = None, *, rows: object = None, state: Mapping[str, Any] | None = None
    ) -> None:
        steps, self._maker = open_steps(data, world or current(), rows=rows, state=state)
        self._steps: Steps | None = steps
        self._at = torch.tensor([steps.epoch, steps.step])
        self._at.share_memory_()  # type: ignore[no-untyped-call]  # so that workers that persist see the next epoch
        self._length = len(steps)
        self._own: dict[str, int] = {}  # where the worker in whose process this is stands
        self._loaded: dict[str, int] = {}

    def __len__(self) -> int:
        """The number of steps of a whole epoch, on every rank."""
        return self._length

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        epoch, first = self._at.tolist()
        here = {"epoch": epoch, "step": first + number, "workers": workers}
        loaded, self._loaded = self._loaded, {}
        if loaded and loaded["workers"] != workers:
            raise DataError(
                f"a state_dict of {loaded['workers']} workers cannot go on with {workers}.",
                remedy="Keep num_workers; or put state(step) into checkpoints, which goes on with any.",
            )
        self._own = loaded or here
        for batch in self._maker.batches(self._own["epoch"], self._own["step"], every=workers):
            self._own = {**self._own, "step": batch.step + workers}
            yield batch.to_torch()

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch; the one that a state was of goes on where that stood."""
        self._at[:] = torch.tensor([epoch, self._here().first(epoch)])

    def state(self, step: int) -> Snapshot:
        """Return the state after this epoch's first ``step`` steps, those of earlier jobs included: see ``Loader``."""
        return self._here().state(int(self._at[0]), step)

    def state_dict(self) -> dict[str, int]:
        """Return where this process goes on: in a DataLoader's worker, that worker."""
        return dict(self._own)

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on where ``state_dict`` of the same worker said."""
        self._own = self._loaded = dict(state)

    def _here(self) -> Steps:
        if self._steps is None:
            raise DataError("only the process that made it knows where all ranks are.", remedy="Ask there.")
        return self._steps

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_steps": None}


class BatchSampler(Sampler[list[int]]):
    """The numbers of this rank's samples, batch by batch: ``DataLoader(dataset, batch_sampler=BatchSampler(...))``.

    In the place of DistributedSampler: every sample of ``samples`` once, over all ranks; the same global batches on any
    number of ranks that divides ``global_batch``; resumed with another number of ranks, too. **Every rank must make
    one.** A sampler can say only which samples to take, so rows behind the last sample repeat sample 0, and
    ``mask(step)`` says which these are; ``tail="drop"`` leaves the last batch out.
    """

    def __init__(
        self,
        samples: int,
        world: World | None = None,
        *,
        global_batch: int,
        seed: int = 0,
        shuffle: bool = True,
        tail: Tail = "pad",
        state: Mapping[str, Any] | None = None,
    ) -> None:
        index = sequence(range(samples)).index()
        how = layout(index, global_batch=global_batch, seed=seed, shuffle=shuffle, lanes=1, tail=tail)
        self._steps = Steps(lambda epoch: EpochPlan(index, how, epoch), world or current(), rows=None, state=state)
        self._epoch = self._steps.epoch

    def __len__(self) -> int:
        """The number of batches that iterating yields, on every rank."""
        return len(self._steps) - self._steps.first(self._epoch)

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self._steps.first(self._epoch), len(self._steps)):
            yield np.maximum(self._ids(step), 0).tolist()

    def mask(self, step: int) -> list[bool]:
        """Return which rows of a step of this epoch are samples, and not repeated ones."""
        kept: list[bool] = (self._ids(step) >= 0).tolist()
        return kept

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch; the one that a state was of goes on where that stood."""
        self._epoch = epoch

    def state(self, step: int) -> Snapshot:
        """Return the state after this epoch's first ``step`` steps, those of earlier jobs included: see ``Loader``."""
        return self._steps.state(self._epoch, step)

    def _ids(self, step: int) -> Any:
        return self._steps.plan(self._epoch).row_ids(self._steps.rows, step, step + 1)[0]
