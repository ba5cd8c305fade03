"""Define the interface of workers, and start workers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from allranks.data.arguments import check_number
from allranks.data.base import SampleTransform
from allranks.errors import DataError

_MOST_WORKERS = 4096


class WorkerPool(Protocol):
    """Processes that apply a chain to pieces, which are lists of samples; best of some milliseconds of work each."""

    def submit(self, samples: Sequence[Any], ids: NDArray[np.int64], epoch: int) -> Future[Sequence[Any]]:
        """Return at once a future for the result of ``chain.apply``; it raises that function's error, or WorkerDied.

        Results may be read in any order. Keep two pieces a worker in flight, so that no worker waits for its next
        piece.
        """

    def rest(self) -> None:
        """End the processes if nothing is submitted for some seconds. The next piece starts them again."""

    def close(self) -> None:
        """End the workers. Pending pieces fail. It may be called again."""


class InlineWorkers:
    """Workers without a process: ``submit`` applies the chain in this process, and then returns."""

    def __init__(self, chain: SampleTransform) -> None:
        self._chain = chain

    def submit(self, samples: Sequence[Any], ids: NDArray[np.int64], epoch: int) -> Future[Sequence[Any]]:
        future: Future[Sequence[Any]] = Future()
        try:
            future.set_result(self._chain.apply(samples, ids, epoch))
        except Exception as error:
            future.set_exception(error)
        return future

    def rest(self) -> None:
        pass

    def close(self) -> None:
        pass


def check_workers(count: Any) -> int:
    """Return a number of worker processes. Raises DataError for any other value."""
    return check_number(
        "workers", count, "a number of worker processes, or 0 to work in this process", most=_MOST_WORKERS
    )


def start_workers(chain: SampleTransform, count: int) -> WorkerPool:
    """Start ``count`` processes that apply a chain, and return them; with 0, this process applies it in ``submit``.

    Raises DataError if the chain's functions cannot be sent to the processes, or if cloudpickle is not installed.
    """
    if check_workers(count) == 0:
        return InlineWorkers(chain)
    try:
        from allranks.data.workers.pool import ProcessPool
    except ModuleNotFoundError as error:
        if error.name != "cloudpickle":
            raise
        remedy = 'Install it: pip install "allranks[data]"; or use workers=0.'
        raise DataError("worker processes need cloudpickle, which is not installed.", remedy=remedy) from error
    return ProcessPool(chain, count)
