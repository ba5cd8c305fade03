"""Make a read-only file object from a function that reads bytes at an offset."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any


class SeekableFile(io.RawIOBase):
    """A read-only file object of ``nbytes`` bytes.

    ``read_at(offset, count)`` returns bytes; it never gets a range outside.
    """

    def __init__(self, nbytes: int, read_at: Callable[[int, int], bytes]) -> None:
        self._nbytes, self._read_at, self._at = nbytes, read_at, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position, also after the end. Raises ValueError for one before the beginning, as files do."""
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._nbytes}[whence]
        if at < 0:
            raise ValueError(f"negative seek position {at}")
        self._at = at
        return at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._nbytes - self._at)
        count = left if size is None or size < 0 else min(size, left)
        data = self._read_at(self._at, count)
        self._at += count
        return data

    def readinto(self, into: Any) -> int:
        view = memoryview(into).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)
