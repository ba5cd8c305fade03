"""Read chunks of shard files into arrays, and verify every byte that is read.

A chunk whose bytes are contiguous in its array is read straight into the array. Other chunks are read into a block of
memory that is used again. So a restore in place needs almost no extra memory, and reads little more than it needs.
"""

from __future__ import annotations

import math
import queue
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal

import numpy as np

from allranks.arrays.base import FillTarget
from allranks.arrays.cast import cast_into
from allranks.arrays.leaves.numpy import DTYPES
from allranks.checkpoint import detect, paths
from allranks.checkpoint.manifest import Manifest
from allranks.checkpoint.restore_plan import ChunkRead, group_reads, plan_reads
from allranks.checkpoint.stage import BlockPool, Bytes
from allranks.digest import hasher_by_name
from allranks.errors import Damaged, NotThere, Truncated
from allranks.storage.base import BLOCK, Storage

# What is wrong with a chunk, "" for nothing: the number of its file, its own there, and its bytes. For any thread.
Check = Callable[[int, int, memoryview], str]


class ChunkReader:
    """Reads arrays of one checkpoint into memory, and verifies each chunk that is read.

    ``cast``: allows that a target's dtype differs from its leaf's.
    ``folder``: the text before the file names of the manifest (default: the folder of the step, and ``/``).
    ``check``: verifies chunks (default: by the manifest's digests).
    ``progress``: called with the number of bytes of every piece that was read, from any thread.
    """

    def __init__(
        self,
        storage: Storage,
        manifest: Manifest,
        *,
        cast: bool = False,
        threads: int = 2,
        folder: str | None = None,
        check: Check | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._storage = storage
        self._manifest = manifest
        self._cast = cast
        self._casting: Literal["unsafe", "same_kind"] = "unsafe" if cast else "same_kind"
        self._threads = threads
        self._progress = progress
        self._step = manifest.step if folder is None else None
        self._folder = f"{paths.step_folder(manifest.step)}/" if folder is None else folder
        self._check = check or _digest_check(manifest)
        self._blocks = BlockPool()

    def fill_targets(self, targets_by_leaf: Sequence[tuple[str, FillTarget]]) -> None:
        """Fill each target with a part of the leaf of this path. Thread-safe.

        Raises Damaged, StorageError, and CannotStore if a number is too large for the target's dtype.
        """
        reads = plan_reads(self._manifest, [(path, target.extent) for path, target in targets_by_leaf])
        place = partial(self._direct_or_not, targets_by_leaf)
        jobs = [(files.file, span) for files in reads for span in group_reads(map(place, files.reads))]
        _in_threads(jobs, partial(self._read_and_copy, targets_by_leaf), self._threads)

    def _direct_or_not(self, wanted: Sequence[tuple[str, FillTarget]], read: ChunkRead) -> ChunkRead:
        """Return ``read``, but with ``direct`` set to None if the chunk cannot be read straight into the target's
        memory.
        """
        if read.direct is None:
            return read
        leaf, target = wanted[read.parts[0].link.wanted]
        fits = target.buffer.flags.c_contiguous and self._is_plain(leaf, target)
        return read if fits else read._replace(direct=None)

    def _read_and_copy(self, wanted: Sequence[tuple[str, FillTarget]], file: int, span: Sequence[ChunkRead]) -> None:
        """Read and verify chunks that are adjacent in a file, and copy their bytes to the targets."""
        first, length = span[0], span[-1].end - span[0].begin
        if first.direct is not None:
            self._read_chunks(file, span, wanted, [_direct_buffer(wanted, read) for read in span])
        else:
            pooled = self._blocks.take_block() if length <= BLOCK else None
            block = np.empty(length, np.uint8) if pooled is None else pooled  # no chunk of ours is larger
            try:
                chunks = [block[read.begin - first.begin : read.end - first.begin] for read in span]
                self._read_chunks(file, span, wanted, chunks)
                for read, chunk in zip(span, chunks, strict=True):
                    self._copy_to_targets(wanted, read, chunk)
            finally:
                if pooled is not None:
                    self._blocks.return_block(pooled)
        self._progress(sum(read.end - read.begin for read in span))

    def _is_plain(self, leaf: str, target: FillTarget) -> bool:
        return not self._cast or bool(target.buffer.dtype == DTYPES[self._manifest.leaves[leaf].dtype])

    def _read_chunks(
        self, file: int, span: Sequence[ChunkRead], wanted: Sequence[tuple[str, FillTarget]], into: Sequence[Bytes]
    ) -> None:
        """Read adjacent chunks, each into its memory in ``into``, and verify them. Raises Damaged."""
        stored = self._manifest.files[file]
        path = f"{self._folder}{stored.name}"
        begin, end = stored.stored_range(span[0].chunk, span[-1].chunk) if stored.stored else (span[0].begin, 0)
        frames = np.empty(end - begin, np.uint8) if stored.stored else None
        try:
            self._storage.read(path, begin, _buffers_for_span(span, into) if frames is None else [frames.data])
        except (NotThere, Truncated) as error:
            size = self._storage.size(path) or 0
            ends = [stored.stored_range(read.chunk, read.chunk)[1] if stored.stored else read.end for read in span]
            cut = next((read for read, at in zip(span, ends, strict=True) if at > size), span[-1])
            raise self._damaged_error(path, cut, wanted, str(error)) from error
        if frames is not None:
            self._decompress_chunks(file, span, wanted, into, frames)
        for read, chunk in zip(span, into, strict=True):
            if what := self._check(file, read.chunk, chunk.data):
                raise self._damaged_error(path, read, wanted, what)

    def _decompress_chunks(
        self,
        file: int,
        span: Sequence[ChunkRead],
        wanted: Sequence[tuple[str, FillTarget]],
        into: Sequence[Bytes],
        frames: Bytes,
    ) -> None:
        """Decompress the frames of chunks into the chunks' memory in ``into``. Raises Damaged."""
        stored, library = self._manifest.files[file], detect.zstd_library(f"step {self._manifest.step}")
        base = stored.stored_range(span[0].chunk, span[0].chunk)[0]
        for read, chunk in zip(span, into, strict=True):
            begin, end = stored.stored_range(read.chunk, read.chunk)
            try:
                chunk[:] = np.frombuffer(
                    library.decompress_chunk(frames[begin - base : end - base].data, len(chunk)), np.uint8
                )
            except ValueError as error:
                raise self._damaged_error(f"{self._folder}{stored.name}", read, wanted, str(error)) from error

    def _damaged_error(
        self, path: str, read: ChunkRead, wanted: Sequence[tuple[str, FillTarget]], what: str
    ) -> Damaged:
        leaf, _ = wanted[read.parts[0].link.wanted]
        return Damaged(
            f"bytes {read.begin}-{read.end} of {self._storage.url}/{path}, of leaf {leaf!r}, are not what was saved: "
            f"{what}",
            path=path,
            leaf=leaf,
            where=(read.begin, read.end),
            step=self._step,
        )

    def _copy_to_targets(self, wanted: Sequence[tuple[str, FillTarget]], read: ChunkRead, chunk: Bytes) -> None:
        for copy in read.plan_copies:
            leaf, target = wanted[copy.wanted]
            dtype: np.dtype[Any] = DTYPES[self._manifest.leaves[leaf].dtype] if self._cast else target.buffer.dtype
            source = chunk[copy.source : copy.source + math.prod(copy.shape) * dtype.itemsize]
            box = source.view(dtype).reshape(copy.shape)
            # An array without dimensions would become a scalar if it were indexed.
            into, box = (target.buffer[copy.into], box[copy.take]) if copy.shape else (target.buffer, box)
            cast_into(into, box, leaf_path=leaf, casting=self._casting)


def _digest_check(manifest: Manifest) -> Check:
    digest = hasher_by_name(manifest.integrity)

    def check(file: int, chunk: int, data: memoryview) -> str:
        found, was = digest(data), manifest.files[file].digests[chunk]
        return "" if found == was else f"expected the digest {was}, found {found}."

    return check


def _in_threads(
    jobs: Iterable[tuple[int, Sequence[ChunkRead]]], work: Callable[[int, Sequence[ChunkRead]], None], threads: int
) -> None:
    """Run all jobs in threads. When the threads have stopped, raise the first error."""
    todo: queue.SimpleQueue[tuple[int, Sequence[ChunkRead]]] = queue.SimpleQueue()
    for job in jobs:
        todo.put(job)
    failed: list[BaseException] = []

    def run() -> None:
        while not failed:
            try:
                file, span = todo.get_nowait()
            except queue.Empty:
                return
            try:
                work(file, span)
            except BaseException as error:
                failed.append(error)

    with ThreadPoolExecutor(threads) as pool:
        for _ in range(threads):
            pool.submit(run)
    if failed:
        raise failed[0]


def _direct_buffer(wanted: Sequence[tuple[str, FillTarget]], read: ChunkRead) -> Bytes:
    """Return the part of the target's memory into which a direct chunk is read."""
    assert read.direct is not None
    flat = wanted[read.parts[0].link.wanted][1].buffer.reshape(-1).view(np.uint8)
    return flat[read.direct : read.direct + read.end - read.begin]


def _buffers_for_span(span: Sequence[ChunkRead], into: Sequence[Bytes]) -> list[memoryview]:
    """Return buffers for all bytes from the first chunk to the last. Bytes between the chunks go to scratch memory."""
    found, at = [], span[0].begin
    for read, chunk in zip(span, into, strict=True):
        if read.begin > at:
            found.append(memoryview(bytearray(read.begin - at)))
        found.append(chunk.data)
        at = read.end
    return found
