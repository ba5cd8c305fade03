"""Text that every machine has: the source files of the Python standard library, as one long string of bytes."""

from __future__ import annotations

import os
import queue
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

import numpy as np


class Text:
    """Files laid end to end. Only their sizes are read at first; a row reads just its own bytes."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(files)
        self.ends = tuple(accumulate(path.stat().st_size for path in self.files))

    @classmethod
    def of_standard_library(cls) -> Text:
        return cls(sorted(Path(os.__file__).parent.glob("*.py")))

    def __len__(self) -> int:
        return self.ends[-1]

    def read(self, start: int, length: int) -> bytes:
        """Return ``length`` bytes from ``start``, across files where need be."""
        found = b""
        while len(found) < length:
            number = bisect_right(self.ends, start + len(found))
            begins = self.ends[number - 1] if number else 0
            with self.files[number].open("rb") as file:
                file.seek(start + len(found) - begins)
                found += file.read(length - len(found))
        return found

    def rows(self, step: int, numbers: range, *, length: int, seed: int) -> np.ndarray:
        """Return rows ``numbers`` of the global batch of ``step``, uint8 [rows, length].

        Where a row begins follows from (seed, step, row) alone, so any number of ranks makes the same global batches.
        """
        starts = (
            np.random.Generator(np.random.Philox(key=seed, counter=(0, 0, row, step))).integers(len(self) - length)
            for row in numbers
        )
        return np.stack([np.frombuffer(self.read(int(start), length), np.uint8) for start in starts])


def prefetch(make: Callable[[int], np.ndarray], steps: range, depth: int) -> Iterator[np.ndarray]:
    """Yield ``make(step)`` for every step, made up to ``depth`` ahead in a thread. What it raises is raised here."""
    made: queue.Queue[np.ndarray | BaseException] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: np.ndarray | BaseException) -> None:
        while not stopped.is_set():
            with suppress(queue.Full):
                made.put(item, timeout=0.1)
                return

    def work() -> None:
        try:
            for step in steps:
                put(make(step))
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        for _ in steps:
            item = made.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()
