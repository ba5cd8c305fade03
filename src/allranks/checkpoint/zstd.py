"""Compress each chunk of a shard file to a frame of Zstandard. `zstd -d` restores the plain file."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import zstandard

from allranks.checkpoint.file_layout import BlockPlan
from allranks.storage.base import BLOCK, BlockSource

# The fastest of the usual levels: compression is for links that are slower than it.
_LEVEL = 1


class CompressedFile:
    """The content of a compressed file (a BlockSource). ``lengths``: the lengths of its frames, in bytes."""

    def __init__(self, frames: Sequence[bytes]) -> None:
        self.lengths = [len(frame) for frame in frames]
        self.size = sum(self.lengths)
        self._memory = mmap.mmap(-1, self.size)  # begins at a page
        for frame in frames:
            self._memory.write(frame)

    def block(self, number: int) -> memoryview:
        return memoryview(self._memory)[number * BLOCK : min((number + 1) * BLOCK, self.size)]

    def done(self, number: int) -> None:
        """Do nothing, because the memory is released with this object."""


def compress_file(source: BlockSource, blocks: Sequence[BlockPlan], *, threads: int = 2) -> CompressedFile:
    """Compress a plain file, one frame for each chunk. The whole compressed file is in memory."""
    local = threading.local()

    def pack(number: int) -> list[bytes]:
        if not hasattr(local, "compressor"):
            local.compressor = zstandard.ZstdCompressor(level=_LEVEL)
        view = source.block(number)
        frames = [local.compressor.compress(view[begin:end]) for begin, end in blocks[number].chunks]
        source.done(number)
        return frames

    with ThreadPoolExecutor(threads) as workers:
        return CompressedFile([frame for frames in workers.map(pack, range(len(blocks))) for frame in frames])


def decompress_chunk(frame: memoryview, size: int) -> bytes:
    """Decompress a frame; return its chunk of ``size`` bytes. Raises ValueError for an invalid frame."""
    try:
        if zstandard.frame_content_size(frame) != size:
            raise ValueError(f"expected a frame of Zstandard with {size} bytes")
        return zstandard.ZstdDecompressor().decompress(frame, max_output_size=size)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
