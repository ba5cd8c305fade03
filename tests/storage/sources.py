"""Files for the tests of storages: page-aligned blocks of known bytes."""

from __future__ import annotations

import mmap
import threading

from allranks.storage.base import BLOCK

SIZES = [0, 1, 4095, 4096, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5]


def content(size: int, seed: int = 0) -> bytes:
    """Bytes that differ from page to page and from block to block."""
    page = bytes((7 * i + seed) % 251 for i in range(4099))
    return (page * (size // len(page) + 1))[:size]


class Blocks:
    """A source of given bytes. ``fail_at`` is the block that raises ``error``; ``freed`` are those that are done."""

    def __init__(self, data: bytes, *, fail_at: int | None = None, error: BaseException | None = None) -> None:
        self.size = len(data)
        self.asked: list[int] = []
        self.freed: list[int] = []
        self._memory = mmap.mmap(-1, max(1, len(data)))
        self._memory[: len(data)] = data
        self._fail_at, self._error = fail_at, error
        self._lock = threading.Lock()

    def block(self, number: int) -> memoryview:
        with self._lock:
            self.asked.append(number)
        if number == self._fail_at and self._error:
            raise self._error
        return memoryview(self._memory)[number * BLOCK : min(self.size, (number + 1) * BLOCK)]

    def done(self, number: int) -> None:
        with self._lock:
            self.freed.append(number)
