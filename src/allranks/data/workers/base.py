"""Define the interface of workers, and workers of this process."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import Transform


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
