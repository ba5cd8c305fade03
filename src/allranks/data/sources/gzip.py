"""Decompress gzip with the standard library."""

from __future__ import annotations

import zlib
from typing import Protocol

ERRORS = (zlib.error,)
_GZIP = 16 + zlib.MAX_WBITS


class FrameDecompressor(Protocol):
    """Decompresses one frame. The decompressor of zlib has this interface."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    @property
    def unconsumed_tail(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def make_decompressor() -> FrameDecompressor:
    """Return a decompressor for one gzip member."""
    return zlib.decompressobj(_GZIP)
