"""From the storage into the arrays: every byte that is read is verified, and hardly more is read than is needed.

A chunk that lands in one piece is read straight into its array; others go through a block that is used again. So a
restore in place takes no memory to speak of.
"""

from __future__ import annotations

import math
import queue
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.arrays.base import OpenTree, Target
from allranks.checkpoint import paths
from allranks.checkpoint.manifest import Manifest
from allranks.checkpoint.restore_plan import Copy, Read, plan, spans
from allranks.checkpoint.stage import BlockPool, Bytes
from allranks.digest import hasher
from allranks.errors import Damaged, NotThere, Truncated
from allranks.extent import Extent
from allranks.storage.base import Storage


def read(storage: Storage, manifest: Manifest, tree: OpenTree, *, threads: int = 2) -> None:
    """Fill a tree's targets, which fit the manifest, from a checkpoint. Raises Damaged, StorageError.

    Where it raises, what the targets hold is not defined.
    """
    wanted: list[tuple[str, Extent]] = []
    targets: list[Target] = []
    for number, one in enumerate(tree.declared):
        for target in tree.targets(number):
            wanted.append((one.path, target.extent))
            targets.append(target)
    reader = _Reader(storage, manifest, [path for path, _ in wanted], targets)
    jobs = [(files.file, span) for files in plan(manifest, wanted) for span in spans(files.reads)]
    _in_threads(jobs, reader.fill, threads)


def _in_threads(
    jobs: Iterable[tuple[int, Sequence[Read]]], work: Callable[[int, Sequence[Read]], None], threads: int
) -> None:
    """Do all jobs, and raise the first error once the threads have stopped."""
    todo: queue.SimpleQueue[tuple[int, Sequence[Read]]] = queue.SimpleQueue()
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


class _Reader:
    """Fills targets, numbered as in the plan; ``leaves`` are their leaves' paths."""

    def __init__(self, storage: Storage, manifest: Manifest, leaves: Sequence[str], targets: Sequence[Target]) -> None:
        self._storage = storage
        self._manifest = manifest
        self._leaves = leaves
        self._buffers = [target.buffer for target in targets]
        self._digest = hasher(manifest.integrity)
        self._blocks = BlockPool()

    def fill(self, file: int, span: Sequence[Read]) -> None:
        """Read and verify chunks that adjoin in a file, and bring their bytes to their places."""
        first, last = span[0], span[-1]
        if first.direct is not None and self._is_plain(first):
            begin = first.direct
            self._read(
                file, span, _flat(self._buffers[first.parts[0].link.wanted])[begin : begin + last.end - first.begin]
            )
            return
        block = self._blocks.take()
        assert block is not None
        try:
            into = block[: last.end - first.begin]
            self._read(file, span, into)
            for read in span:
                for copy in read.copies:
                    self._copy(copy, into[read.begin - first.begin :])
        finally:
            self._blocks.give(block)

    def _is_plain(self, read: Read) -> bool:
        return bool(self._buffers[read.parts[0].link.wanted].flags.c_contiguous)

    def _read(self, file: int, span: Sequence[Read], into: Bytes) -> None:
        stored = self._manifest.files[file]
        path = f"{paths.step_folder(self._manifest.step)}/{stored.name}"
        begin = span[0].begin
        try:
            self._storage.read(path, begin, [into.data])
        except (NotThere, Truncated) as error:
            size = self._storage.size(path) or 0
            cut = next((read for read in span if read.end > size), span[-1])
            raise self._damaged(path, cut, str(error)) from error
        for read in span:
            found = self._digest(into.data[read.begin - begin : read.end - begin])
            if found != stored.digests[read.chunk]:
                raise self._damaged(path, read, f"their digest is {found}, and was {stored.digests[read.chunk]}.")

    def _damaged(self, path: str, read: Read, what: str) -> Damaged:
        leaf = self._leaves[read.parts[0].link.wanted]
        return Damaged(
            f"bytes {read.begin}-{read.end} of {self._storage.url}/{path}, of leaf {leaf!r}, are not what was saved: "
            f"{what}",
            path=path,
            leaf=leaf,
            where=(read.begin, read.end),
            step=self._manifest.step,
        )

    def _copy(self, copy: Copy, chunk: Bytes) -> None:
        buffer = self._buffers[copy.wanted]
        count = math.prod(copy.shape)
        source = chunk[copy.source : copy.source + count * buffer.itemsize].view(buffer.dtype).reshape(copy.shape)
        if copy.shape:
            np.copyto(buffer[copy.into], source[copy.take])
        else:  # indexed, it would be no array any more
            np.copyto(buffer, source)


def _flat(buffer: NDArray[Any]) -> Bytes:
    return buffer.reshape(-1).view(np.uint8)
