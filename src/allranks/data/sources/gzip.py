"""Decompress gzip with the standard library."""

from __future__ import annotations

import zlib
from typing import Protocol

ERRORS = (zlib.error,)
_GZIP = 16 + zlib.MAX_WBITS


class FrameDecompressor(Protocol):
    """Decompresses one frame. The decompressors of zlib and python-zstandard have this interface."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


def make_decompressor() -> FrameDecompressor:
    """Return a decompressor for one gzip member."""
    return zlib.decompressobj(_GZIP)
