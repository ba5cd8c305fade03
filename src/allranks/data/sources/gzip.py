"""Decompress gzip with the standard library."""

from __future__ import annotations

import zlib
from typing import Protocol

ERRORS = (zlib.error,)
_GZIP = 16 + zlib.MAX_WBITS


class Unpacker(Protocol):
    """The interface of a decompressor for one frame, which zlib and python-zstandard have."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


def unpacker() -> Unpacker:
    """Return a decompressor for one gzip member."""
    return zlib.decompressobj(_GZIP)
