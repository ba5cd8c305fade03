"""What this machine's disk and memory do at best for as many bytes as a checkpoint has; what a process uses of both.

Seconds are taken with the tricks of a good checkpoint writer: no fresh memory, huge pages (with small ones O_DIRECT is
half as fast here), large aligned blocks, O_DIRECT, space allocated before, two threads.
"""

from __future__ import annotations

import mmap
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

BLOCK, PAGE, HUGE, THREADS = 8 << 20, 4096, 2 << 20, 2
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def warm(size: int) -> Bytes:
    """Return memory of this size that begins on a huge page, all of it touched."""
    memory = mmap.mmap(-1, size + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, np.uint8)
    begin = -whole.ctypes.data % HUGE
    whole[:] = 1
    return whole[begin : begin + size]


def timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _threads(pieces: Sequence[Callable[[], object]], count: int) -> None:
    """Call them all, every ``count``-th in the same thread."""
    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(lambda mine=pieces[i::count]: [piece() for piece in mine]) for i in range(count)]:
            done.result()


class Limits:
    """The raw limits, of buffers that are allocated once. ``path`` is a file that is written anew each time."""

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size = path, -(-size // PAGE) * PAGE
        self._begins = range(0, self.size, BLOCK)
        self._blocks = [warm(BLOCK) for _ in range(min(16, len(self._begins)))]
        noise = np.random.default_rng(0)
        for block in self._blocks:
            block[:] = np.frombuffer(noise.bytes(BLOCK), np.uint8)

    def write(self) -> float:
        """Seconds to write the file durably."""
        self.path.unlink(missing_ok=True)
        return timed(self._write)

    def read_cold(self) -> float:
        """Seconds to read the file from the disk, by the better of two ways."""

        def cold(way: Callable[[], None]) -> float:
            evict([self.path])
            return timed(way)

        return min(cold(self._read), cold(self._touch))

    def read_warm(self) -> float:
        """Seconds to read the file from the page cache into warm memory."""
        self._read()
        return timed(self._read)

    def _each(self, file: int, call: Callable[[int, Bytes, int], object]) -> None:
        def piece(number: int, begin: int) -> Callable[[], object]:
            block = self._blocks[number % len(self._blocks)][: self.size - begin]
            return lambda: call(file, block, begin)

        _threads([piece(number, begin) for number, begin in enumerate(self._begins)], THREADS)

    def _write(self) -> None:
        try:
            file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
        except OSError as error:
            raise SystemExit(
                f"{self.path.parent} has no O_DIRECT ({error}): set TMPDIR to a folder on a disk"
            ) from error
        try:
            os.posix_fallocate(file, 0, self.size)
            self._each(file, os.pwrite)
            os.fdatasync(file)
        finally:
            os.close(file)

    def _read(self) -> None:
        file = os.open(self.path, os.O_RDONLY)
        try:
            self._each(file, lambda file, block, begin: os.preadv(file, [block], begin))
        finally:
            os.close(file)

    def _touch(self) -> None:
        file = os.open(self.path, os.O_RDONLY)
        with mmap.mmap(file, self.size, prot=mmap.PROT_READ) as memory:
            memory.madvise(mmap.MADV_SEQUENTIAL)
            pages = np.frombuffer(memory, np.uint8)[::PAGE]
            half = len(pages) // THREADS + 1
            _threads([pages[begin : begin + half].sum for begin in range(0, len(pages), half)], THREADS)
            del pages
        os.close(file)


def copying(leaves: Iterable[Bytes], threads: int) -> float:
    """Seconds to copy the leaves to warm memory."""
    leaves = list(leaves)
    target, end, pieces = warm(sum(leaf.size for leaf in leaves)), 0, []
    for leaf in leaves:
        for begin in range(0, leaf.size, BLOCK):
            piece = leaf[begin : begin + BLOCK]
            pieces.append(lambda to=target[end : end + piece.size], piece=piece: np.copyto(to, piece))
            end += piece.size
    if threads == 1:
        return timed(lambda: [piece() for piece in pieces])
    return timed(lambda: _threads(pieces, threads))


def files_under(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


def make_durable(folder: Path) -> None:
    """What a user must do whose checkpoint library does not: fsync all files, all folders, and the folder above."""
    for path in [*folder.rglob("*"), folder, folder.parent]:
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def evict(files: Iterable[Path]) -> None:
    """Take durable files out of the page cache."""
    for path in files:
        file = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def resident(field: str = "VmRSS") -> int:
    """Bytes of this process in memory now; the most there were since ``forget_peak`` with ``VmHWM``."""
    found = re.search(rf"^{field}:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) * 1024


def forget_peak() -> int:
    """Begin a new peak of memory. Returns the bytes in memory now."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident()


def bytes_read() -> int:
    """Bytes that this process has asked the file systems for, page cache included."""
    return int(Path("/proc/self/io").read_text().split("rchar: ")[1].split()[0])
