"""Let DataLoaders report to allranks' data sets and samplers when an iteration begins, and how many batches were
yielded.

With workers, a data set in the main process is not informed of an iteration. A sampler does not learn how many of its
batches have reached the loop. The base class of all iterators of a DataLoader (torchdata's and Accelerate's, too) knows
both. Nothing is done per batch, and nothing for data sets and samplers of other libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from torch.utils.data import DataLoader, dataloader

from allranks.data.epochs import EpochTracker
from allranks.data.snapshot import Snapshot
from allranks.data.steps import LoaderSteps
from allranks.errors import DataError

_DEEPEST = 8


def _none() -> int:
    return 0


class EpochReader:
    """The base of allranks' data sets and samplers: counts epochs, and the position of the training loop in them."""

    _steps: LoaderSteps | None
    _epochs: EpochTracker
    # A DataLoader, and how many of its batches whoever iterates over it holds back from the loop.
    _held_back: tuple[Any, Callable[[], int]] = (None, _none)
    _not_seen: Callable[[], int] = staticmethod(_none)  # the same, of a DataLoader that saves its own states

    @property
    def epoch(self) -> int:
        """The number of the epoch that the loop is in, from 0 on.

        Before the first batch of a resumed program, it is the epoch in which that program continues.
        """
        return self._epochs.epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next iteration's epoch. The epoch of a loaded state continues at its position.

        The call is optional: every iteration is followed by the next epoch, except one from which at most one batch was
        taken. In a resumed program, numbers that begin with 0 count from the epoch of the state; other numbers are
        epochs of the data. Raises DataError for an epoch before the state's.
        """
        self._epochs.set_epoch(epoch)

    def state(self, step: int | None = None) -> Snapshot:
        """Return the state after this epoch's first ``step`` steps, including those of earlier jobs: see ``Loader``.

        Without ``step``: after the batches that the DataLoader has yielded; batches that its workers prepared ahead do
        not count.
        """
        steps = self._here()
        if step is None:
            epoch, step = self._epochs.current_position()
            return steps.state(epoch, max(step - self._not_seen(), steps.first_step(epoch)))
        return steps.state(self._epochs.epoch_after_step(step), step)

    def set_batches_behind(self, loader: DataLoader[Any], batches: Callable[[], int]) -> None:
        """Set how many batches the loop is behind the loader: ``batches()`` fewer than ``loader`` has yielded.

        A loader with a state of its own is queried for it when the loop has got all of its batches.
        """
        if hasattr(loader, "state_dict"):
            self._not_seen = batches
        else:
            self._held_back = (loader, batches)

    def _begin(self, taken: Callable[[], int], *, in_process: bool) -> None:
        """Begin an iteration over this data set. ``in_process``: it is read in this process, not by workers."""
        raise NotImplementedError

    def _here(self) -> LoaderSteps:
        if self._steps is None:
            raise DataError(
                "state: this copy of the loader is in a worker process, which does not know the "
                "positions of all ranks.",
                remedy="Call state() in the process that made the loader.",
            )
        return self._steps

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_steps": None, "_held_back": (None, _none), "_not_seen": _none}


def readers_of(loader: DataLoader[Any]) -> Iterator[tuple[EpochReader, list[Any]]]:
    """Yield each data set or sampler of allranks that a DataLoader reads, with other libraries' wrappers around it."""
    for found, name in ((loader.dataset, "dataset"), (loader._index_sampler, "batch_sampler")):
        around: list[Any] = []
        while not isinstance(found, EpochReader) and len(around) < _DEEPEST:
            around.append(found)
            found = getattr(found, "__dict__", {}).get(name)
        if isinstance(found, EpochReader):
            yield found, around


def refuse_shards(reader: EpochReader, wrappers: list[Any]) -> None:
    """Raise DataError if a wrapper of another library would shard a data set or sampler of allranks a second time."""
    for one in wrappers:
        if (processes := getattr(one, "num_processes", 1)) > 1:
            raise DataError(
                f"{type(one).__name__} would deal out among {processes} processes what {type(reader).__name__} has "
                "dealt out already.",
                remedy="Give the loop a DataLoader of it as it is. (accelerator.prepare does, of one that was made "
                "after allranks.integrations.torch was imported.)",
            )


def _patch_iterator_base(base: Any) -> None:
    """Patch the base class of DataLoader iterators, so that allranks' data sets learn when an iteration begins."""
    start, reset = base.__init__, base._reset

    @wraps(start)
    def init(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        start(self, loader, *args, **kwargs)
        for reader, around in readers_of(loader):
            refuse_shards(reader, around)
            taken = _counter_of_yielded(self, loader, reader, around)
            if reader is loader.dataset:
                reader._begin(taken, in_process=not loader.num_workers)
            else:
                reader._epochs.follow_count(taken)

    @wraps(reset)
    def again(self: Any, loader: Any, first_iter: bool = False, *args: Any, **kwargs: Any) -> None:
        counted = [(one, _counter_of_yielded(self, loader, one, around)) for one, around in readers_of(loader)]
        for reader, taken in counted:
            if reader is loader.dataset and not first_iter:
                reader._begin(taken, in_process=False)
        reset(self, loader, first_iter, *args, **kwargs)
        for reader, taken in counted:
            if reader is not loader.dataset:
                reader._epochs.follow_count(taken)

    base.__init__, base._reset = init, again


def _counter_of_yielded(iterator: Any, loader: Any, reader: EpochReader, around: list[Any]) -> Callable[[], int]:
    """Return a function that counts the batches that the loop has got from an iterator, including skipped ones."""
    held = vars(iterator)  # it outlives the iterator, which ends its workers when it dies
    skipped = sum(getattr(one, "skip_batches", 0) for one in around)
    holder, held_back = reader._held_back
    if holder is not loader:
        held_back = _none
    return lambda: max(held["_num_yielded"] + skipped - held_back(), 0)


_patch_iterator_base(dataloader._BaseDataLoaderIter)
