"""Define the base class of all loaders, which moves batches to devices and provides ``state()`` and ``audit()``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from allranks.data.arguments import check_number
from allranks.data.batch import Batch
from allranks.data.detect import import_adapter
from allranks.data.ledger import SampleSum
from allranks.data.plan import SamplePlan
from allranks.data.snapshot import Snapshot
from allranks.world.progress import progress

A = TypeVar("A")
B = TypeVar("B")


def place_ahead(batches: Iterable[A], place_batch: Callable[[A], B], *, batches_ahead: int) -> Iterator[tuple[A, B]]:
    """Yield every batch with the result of ``place_batch``, which a thread computes for ``batches_ahead`` more batches.

    The batches themselves are taken in the thread of the caller, because that may be a collective. With 0, there is no
    thread. An error of ``place_batch`` is raised where its batch is due. The audit must count a batch when this
    function yields it, not when ``batches`` does.
    """
    if not batches_ahead:
        for batch in batches:
            yield batch, place_batch(batch)
        return
    placed: deque[tuple[A, Future[B]]] = deque()
    pool = ThreadPoolExecutor(1, thread_name_prefix="allranks-transfer")
    try:
        for batch in batches:
            placed.append((batch, pool.submit(place_batch, batch)))
            if len(placed) > batches_ahead:
                due, result = placed.popleft()
                yield due, result.result()
        for due, result in placed:
            yield due, result.result()
    finally:
        pool.shutdown(cancel_futures=True)


class LoaderAudit(Protocol):
    """What all loaders need of an audit, which checks that the planned samples are taken."""

    def counted_rows(self, rows: Sequence[int], /) -> NDArray[np.bool_]:
        """Return, for each of a rank's rows, whether this rank counts it.

        One of the ranks that hold a row counts that row.
        """

    def verify_taken(self) -> SampleSum:
        """Prove that the samples taken so far are those of the plan, and return their sum.

        Collective. Raises LedgerMismatch.
        """

    def snapshot(self, epoch: int, depth: int, /) -> Snapshot:
        """Return the loader's state in ``epoch`` after ``depth`` samples of each stream."""


class DeviceIterator(ABC):
    """The base class of all loaders.

    It yields batches as NumPy arrays, or as arrays on devices that are copied ahead.
    """

    rows: Sequence[int]
    _plan: SamplePlan
    _step: int
    _audit: LoaderAudit
    _rest: Callable[[], None]
    _close: Callable[[], None]

    @property
    def epoch(self) -> int:
        """The number of this epoch, from 0."""
        return self._plan.epoch

    @property
    def step(self) -> int:
        """How many batches of this epoch were taken."""
        return self._step

    @property
    def counted(self) -> NDArray[np.bool_]:
        """For each of this rank's rows, whether this rank counts it. One of the ranks that hold a row counts that row.

        For a sum over the ranks, as of ``masked_mean``, use the mask ``batch.mask & loader.counted``.
        """
        return self._audit.counted_rows(self.rows)

    def state(self) -> Snapshot:
        """Return this loader's position, for a checkpoint: ``extra={"data": loader.state()}``. Cheap; local.

        ``allranks.Checkpointer`` gathers it from all ranks when it saves; for other checkpoints store
        ``state().gathered()``, which every rank must call.
        """
        return self._audit.snapshot(self.epoch, self._step * self._plan.layout.depth_of_step)

    def audit(self) -> SampleSum:
        """Prove that the samples that all ranks took of this epoch are those of the plan. **Every rank must call.**

        Returns the number of these samples, the sum of their mixed ids, and how many of them could not be used. Raises
        LedgerMismatch on every rank, with the ranks, steps and samples that differ.
        """
        return self._audit.verify_taken()

    def close(self) -> None:
        """End the threads and workers. The position and the counted samples are kept."""
        self._close()

    @abstractmethod
    def _place_each(self, place: Callable[[Batch], B], *, ahead: int) -> Generator[B, None, None]:
        """Yield the result of ``place`` for every batch of the epoch. A batch is counted when its result is yielded."""

    def __iter__(self) -> Iterator[Batch]:
        return self._record_waiting(self._place_each(lambda batch: batch, ahead=0))

    def to_jax(self, where: Any, *, ahead: int = 2, mask: str = "mask") -> Iterator[dict[str, Any]]:
        """Iterate over the batches, and yield the result of ``Batch.to_jax(where)`` for each.

        A thread copies ``ahead`` more batches to the devices while one is in use. They are not counted before they are
        yielded, so ``state`` is right at every step. ``ahead`` must be the same on every rank.
        """
        place = import_adapter("jax").with_settings(lambda batch: batch.to_jax(where, mask=mask))
        return self._record_waiting(self._place_each(place, ahead=_checked_ahead(ahead)))

    def to_torch(
        self, device: Any = None, *, pin_memory: bool | None = None, ahead: int = 2, mask: str = "mask"
    ) -> Iterator[dict[str, Any]]:
        """Iterate over the batches, and yield the result of ``Batch.to_torch(device)`` for each.

        A thread copies ``ahead`` more batches to the device while one is in use: through pinned memory if ``device`` is
        a GPU, unless ``pin_memory`` is False. They are not counted before they are yielded, so ``state`` is right at
        every step. ``ahead`` must be the same on every rank. Without a device nothing is copied.
        """
        many = _checked_ahead(ahead)
        copies = many if device is not None or pin_memory else 0
        place = import_adapter("torch").placement(device, pin_memory, mask)
        return self._record_waiting(self._place_each(place, ahead=copies))

    def _record_waiting(self, batches: Generator[B, None, None]) -> Iterator[B]:
        """Yield the batches. While this waits for one, the hang report says that this rank waits for data.

        When the iteration ends, workers may rest.
        """
        try:
            while True:
                before = progress.enter("data", "the next batch")
                try:
                    batch = next(batches, None)
                finally:
                    progress.leave(before)
                if batch is None:
                    return
                yield batch
        finally:
            batches.close()  # its threads submit nothing any more
            self._rest()


def _checked_ahead(ahead: int) -> int:
    return check_number("ahead", ahead, "a number of batches to copy ahead, or 0")
