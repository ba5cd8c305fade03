"""Decompress Zstandard with python-zstandard, a bounded number of bytes at a time."""

from __future__ import annotations

import zstandard

ERRORS = (zstandard.ZstdError,)
_WIDEST = 1 << 31  # what `zstd --long=31` writes
_MAGIC = b"\x28\xb5\x2f\xfd"
_FLAGS_END = 5  # of a frame's head: the magic number, and a byte that tells its size
_BLOCK_HEAD = 3
_BLOCK_BITS = 17  # a block holds at most 128 KiB
_NEVER = 1 << 62


class ZstdFrame:
    """Decompresses one frame, with the interface of zlib's decompressor.

    python-zstandard cannot limit its output. So this class reads the heads of the frame's blocks, of which each has
    a bounded output, and passes it a bounded number of blocks.
    """

    def __init__(self) -> None:
        self.unconsumed_tail = b""
        self._object = zstandard.ZstdDecompressor(max_window_size=_WIDEST).decompressobj()
        self._held = b""  # the beginning of a head whose end is not there yet
        self._next = -1  # bytes until the next head of a block; -1: the frame's head is not read yet

    @property
    def eof(self) -> bool:
        return bool(self._object.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._object.unused_data)

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Return about ``max_length`` bytes at most; the input that was not needed is then in ``unconsumed_tail``."""
        data, self._held = self._held + data, b""
        if self._next < 0 and len(data) < _FLAGS_END and data[:4] == _MAGIC[: len(data)]:
            self._held = data
            return b""
        self._next = _size_of_head(data) if self._next < 0 else self._next
        blocks = max(max_length >> _BLOCK_BITS, 1)
        while blocks and self._next <= len(data) - _BLOCK_HEAD:
            head = int.from_bytes(data[self._next : self._next + _BLOCK_HEAD], "little")
            size = 1 if head >> 1 & 3 == 1 else head >> 3  # a block of type 1 repeats one byte
            self._next = _NEVER if head & 1 else self._next + _BLOCK_HEAD + size
            blocks -= 1
        cut = min(len(data), self._next)
        self.unconsumed_tail, self._held = (data[cut:], b"") if not blocks else (b"", data[cut:])
        self._next -= cut if self._next < _NEVER else 0
        return self._object.decompress(data[:cut])


def _size_of_head(data: bytes) -> int:
    """Return the size of a frame's head; _NEVER for a frame without blocks, and for other bytes."""
    if data[:4] != _MAGIC:
        return _NEVER
    flags = data[4]
    single, size_flag = flags >> 5 & 1, flags >> 6
    content_size = (1 if single else 0, 2, 4, 8)[size_flag]
    return _FLAGS_END + (0 if single else 1) + (0, 1, 2, 4)[flags & 3] + content_size


def make_decompressor() -> ZstdFrame:
    """Return a decompressor for one frame."""
    return ZstdFrame()
