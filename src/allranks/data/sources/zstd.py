"""Decompress Zstandard with python-zstandard."""

from __future__ import annotations

import zstandard

ERRORS = (zstandard.ZstdError,)
_WIDEST = 1 << 31  # what `zstd --long=31` writes


def make_decompressor() -> zstandard.ZstdDecompressionObj:
    """Return a decompressor for one frame."""
    return zstandard.ZstdDecompressor(max_window_size=_WIDEST).decompressobj()
