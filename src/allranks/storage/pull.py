"""Read the blocks of one file on several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count

from .base import BLOCK, BlockSource


def count_blocks(size: int) -> int:
    """Return the number of blocks of a file of ``size`` bytes."""
    return -(-size // BLOCK)


def pull_blocks(source: BlockSource, write_block: Callable[[int, memoryview], None], *, thread_count: int) -> None:
    """Pass the offset and the bytes of every block to ``write_block``, on ``thread_count`` threads, including the
    caller's.

    Blocks are requested in ascending order. After the first error of the source or the sink, the other threads stop
    when their current block is done, and the error is raised unchanged. ``source.done`` is called after every
    ``source.block``, so a source that waits for free memory never waits for a thread that failed.
    """
    total = count_blocks(source.size)
    numbers = count()  # next() on it is atomic
    errors: list[BaseException] = []

    def one(number: int) -> None:
        data = source.block(number)
        try:
            write_block(number * BLOCK, data)
        finally:
            source.done(number)

    def work() -> None:
        try:
            while not errors and (number := next(numbers)) < total:
                one(number)
        except BaseException as error:  # every kind: it is raised by the caller's thread
            errors.append(error)

    # Daemons: a half-written file must not keep a process from ending.
    others = []
    for _ in range(min(thread_count, total) - 1):
        thread = threading.Thread(target=work, name="allranks-write", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # Python 3.12 and newer start no thread while the program ends: those that run do the work
            break
        others.append(thread)
    work()
    for thread in others:
        thread.join()
    if errors:
        raise errors[0]
