"""Copy arrays into reused blocks of memory, and compute the digests of their chunks for the storage to write.

Fresh memory is ten times slower than used memory, so a save copies into the blocks of the save before. Bytes that may
change when the program continues are copied before ``save`` returns. Other bytes are copied when their block is
written.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from allranks.checkpoint.file_layout import FileLayout
from allranks.storage.base import BLOCK

Bytes = NDArray[np.uint8]

_SHORT_COPY = 64 << 10  # bytes: to release the interpreter lock for so short a copy takes longer than the copy
_HUGE = 2 << 20


class BlockPool:
    """Page-aligned blocks of memory, at most ``limit`` of them (None: any number). Thread-safe."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._count = 0
        self._free: list[Bytes] = []
        self._changed = threading.Condition()
        self._ends = False

    @property
    def allocated_bytes(self) -> int:
        """The size of all blocks in bytes, in use or not."""
        return self._count * BLOCK

    def may_hold(self, block_count: int) -> bool:
        """Return whether the limit allows this many blocks."""
        return self._limit is None or block_count <= self._limit

    def take_block(self, given_up: Callable[[], bool] = lambda: False) -> Bytes | None:
        """Return a block. If all are in use, wait until one is returned, or until ``given_up()`` (then return None)."""
        with self._changed:
            self._changed.wait_for(lambda: self._free or self._may_grow() or given_up())
            if given_up():
                return None
            if self._free:
                return self._free.pop()
            self._count += 1
        return fresh_block()

    def return_block(self, block: Bytes) -> None:
        """Return a block that ``take_block`` has handed out to the pool."""
        with self._changed:
            self._free.append(block)
            self._changed.notify()

    def allocate_blocks(self, block_count: int) -> None:
        """Allocate and touch blocks until there are ``block_count``, as far as the limit allows.

        For a background thread.
        """
        while True:
            with self._changed:
                if self._ends or self._count >= block_count or not self._may_grow():
                    return
                self._count += 1
            block = fresh_block()
            block[:: mmap.PAGESIZE] = 0
            self.return_block(block)

    def stop_allocation(self) -> None:
        """Make ``allocate_blocks`` return after its current block."""
        self._ends = True

    def wake_waiters(self) -> None:
        """Make threads that wait in ``take_block`` check again whether to give up."""
        with self._changed:
            self._changed.notify_all()

    def _may_grow(self) -> bool:
        return self._limit is None or self._count < self._limit


def fresh_block() -> Bytes:
    """Return a block of new memory, on huge pages if the system has them: a disk then reads it twice as fast."""
    memory = mmap.mmap(-1, BLOCK + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel that knows no huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, np.uint8)
    begin = -whole.ctypes.data % _HUGE
    return whole[begin : begin + BLOCK]


class ShardFileContent:
    """The content of one rank's file, in blocks that the storage requests (a BlockSource).

    ``sources``: the bytes of the header, then of every part in the layout. ``digest``: returns the digest of a chunk.
    ``mutable``: for each source, whether the program may change its bytes. ``copy_mutable_blocks`` copies the blocks
    with such bytes into blocks of ``staging``. Other blocks are copied into blocks of ``bounce`` when they are
    requested.
    ``check_abort``: called before each block; it raises to end the write.

    If ``staging`` has room for all copies, no block is returned before all are copied: writing would only slow down the
    copies for which the program waits.
    """

    def __init__(
        self,
        file_layout: FileLayout,
        sources: Sequence[Bytes],
        *,
        digest: Callable[[memoryview], str],
        bounce: BlockPool,
        staging: BlockPool,
        mutable: Sequence[bool],
        check_abort: Callable[[], None] = lambda: None,
    ) -> None:
        self._layout = file_layout
        self._sources = sources
        self._digest = digest
        self._check_abort = check_abort
        self._bounce = bounce
        self._staging = staging
        self._digests: list[list[str]] = [[] for _ in file_layout.blocks]
        to_stage = [
            n for n, block in enumerate(file_layout.blocks) if any(mutable[copy.source] for copy in block.copies)
        ]
        self._staged: dict[int, _StagedBlock] = {number: _StagedBlock() for number in to_stage}
        self._in_use: dict[int, tuple[Bytes, BlockPool]] = {}
        self._may_begin = threading.Event()
        if not to_stage or not staging.may_hold(len(to_stage)):
            self._may_begin.set()
        self._failure: BaseException | None = None

    @property
    def size(self) -> int:
        return self._layout.plan.bytes

    @property
    def chunk_digests(self) -> list[str]:
        """The digests of all chunks. They are complete when all blocks were requested."""
        return [digest for block in self._digests for digest in block]

    def copy_mutable_blocks(self, thread_count: int) -> None:
        """Copy the blocks with bytes that the program may change.

        If ``staging`` has too few blocks, wait until some are free.
        """
        numbers, turn = iter(sorted(self._staged)), threading.Lock()
        with ThreadPoolExecutor(thread_count) as workers:
            for done in [workers.submit(self._stage_blocks, numbers, turn) for _ in range(thread_count)]:
                done.result()
        self._may_begin.set()

    def _stage_blocks(self, numbers: Iterator[int], turn: threading.Lock) -> None:
        try:
            while True:
                with turn:  # blocks of memory are handed out in the order in which they are written
                    number = next(numbers, None)
                    block = None if number is None else self._staging.take_block(self._has_failed)
                if number is None or block is None:
                    return
                self._fill_block(block, number)
                self._staged[number].fill_block(block)
        except BaseException as error:
            self.fail_write(error)
            raise

    def fail_write(self, error: BaseException) -> None:
        """Stop all threads that work on this file. ``block`` then raises the error."""
        self._failure = error
        self._may_begin.set()
        for staged in list(self._staged.values()):
            staged.ready.set()
        self._staging.wake_waiters()

    def _has_failed(self) -> bool:
        return self._failure is not None

    def _fill_block(self, block: Bytes, number: int) -> None:
        into = block.data
        for begin, end, source, start in self._layout.blocks[number].copies:
            piece = self._sources[source][start : start + end - begin]
            if end - begin < _SHORT_COPY:
                into[begin:end] = piece.data
            else:
                np.copyto(block[begin:end], piece)

    def block(self, number: int) -> memoryview:
        self._may_begin.wait()
        self._check_abort()
        block, pool = self._filled_block(number)
        self._in_use[number] = block, pool
        plan = self._layout.blocks[number]
        view = block.data[: plan.nbytes]
        self._digests[number] = [self._digest(view[begin:end]) for begin, end in plan.chunks]
        return view

    def _filled_block(self, number: int) -> tuple[Bytes, BlockPool]:
        staged = self._staged.get(number)
        if staged is None:
            block = self._bounce.take_block()
            assert block is not None
            self._fill_block(block, number)
            return block, self._bounce
        staged.ready.wait()
        if self._failure is not None:
            raise self._failure
        assert staged.block is not None
        return staged.block, self._staging

    def done(self, number: int) -> None:
        block, pool = self._in_use.pop(number)
        pool.return_block(block)


class _StagedBlock:
    """A block that is copied before the program continues. ``ready`` is set when it is copied."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.block: Bytes | None = None

    def fill_block(self, block: Bytes) -> None:
        self.block = block
        self.ready.set()
