"""Define the interface of workers, and start them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import Transform
from allranks.errors import DataError


class Workers(Protocol):
    """Processes that apply a chain to pieces: lists of samples, best of some milliseconds of work each."""

    def submit(self, samples: Sequence[Any], ids: NDArray[np.int64], epoch: int) -> Future[list[Any]]:
        """Return the future of ``chain.apply``'s result at once; it has that error, or WorkerDied.

        Read the results in your own order; keep two pieces a worker in flight, so that none waits for the next.
        """

    def close(self) -> None:
        """End the workers; pending pieces fail. May be called again."""


class Inline:
    """Workers of this process: a piece is done when it is submitted."""

    def __init__(self, chain: Transform) -> None:
        self._chain = chain

    def submit(self, samples: Sequence[Any], ids: NDArray[np.int64], epoch: int) -> Future[list[Any]]:
        future: Future[list[Any]] = Future()
        try:
            future.set_result(self._chain.apply(samples, ids, epoch))
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        pass


def start_workers(chain: Transform, count: int) -> Workers:
    """Start ``count`` processes that apply a chain; with 0, this process does, in ``submit``.

    Raises DataError where the chain's functions cannot be sent to them, or cloudpickle is not installed.
    """
    if count < 0:
        raise DataError(f"workers={count}: expected a number of processes, or 0 for this one.")
    if count == 0:
        return Inline(chain)
    try:
        from allranks.data.workers.pool import Pool
    except ModuleNotFoundError as error:
        if error.name != "cloudpickle":
            raise
        remedy = 'Install it: pip install "allranks[data]"; or use workers=0.'
        raise DataError("worker processes need cloudpickle, which is not installed.", remedy=remedy) from error
    return Pool(chain, count)
