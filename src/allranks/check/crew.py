"""What a large check needs of its process: two more that read files, where that pays, no collector of garbage, and room
for code that is nested deeply. An effect."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeAlias

from allranks.check.reading import Cache, key_of, missing, parsed

ENOUGH, WORKERS, AT_ONCE = 500_000, 2, 8  # bytes, processes, files
DEEPEST = 5_000  # calls within each other; a stack of 8 MiB holds more
BEHIND = 10  # steps of niceness

_Files: TypeAlias = Sequence[tuple[str, bytes]]


@contextmanager
def uncollected() -> Iterator[None]:
    """Nobody looks for circles of garbage meanwhile: a check makes few, and keeps nearly all else. A tenth faster."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@contextmanager
def deep() -> Iterator[None]:
    """Code may be nested deeper meanwhile than Python allows by itself: fifty modules that import each other in a row
    are."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, DEEPEST))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@contextmanager
def read_ahead(sources: Mapping[str, bytes], cache: Cache) -> Iterator[Cache]:
    """Have the local rules asked about these files in processes of their own, if there is much and cores for them.

    Whoever asks the cache that this gives for what is under way waits for it. The processes are forked from a process
    of one thread, and started anew from any other.
    """
    todo = missing(sources, cache)
    cores = _cores()
    if sum(len(raw) for _, raw in todo) < ENOUGH or cores < 2:
        yield cache
        return
    todo.sort(key=lambda item: len(item[1]), reverse=True)
    # Dealt out from the largest on, there and back, so that each has as much to do.
    count = min(WORKERS, cores)
    turns = [*range(count), *reversed(range(count))]
    shares: list[list[tuple[str, bytes]]] = [[] for _ in range(count)]
    for at, item in enumerate(todo):
        shares[turns[at % len(turns)]].append(item)
    how: ForkContext | SpawnContext = get_context("fork") if _has_one_thread() else get_context("spawn")
    workers: list[BaseProcess] = []
    arriving = _Arriving(cache)
    for share in shares:
        ours, theirs = how.Pipe(duplex=False)
        worker: BaseProcess = how.Process(target=_read, args=(share, theirs), daemon=True)
        worker.start()
        theirs.close()
        workers.append(worker)
        arriving.expect(share, ours)
    try:
        yield arriving
    finally:
        arriving.close()
        for worker in workers:
            worker.terminate()
            worker.join()


class _Arriving:
    """A cache of which some of the entries are under way. What does not come, as a process died, is never there."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._from: dict[bytes, Connection] = {}
        self._open: list[Connection] = []

    def expect(self, files: _Files, connection: Connection) -> None:
        """Take in what will be made of files when somebody asks for it."""
        self._from.update({key_of(path, raw): connection for path, raw in files})
        self._open.append(connection)

    def get(self, key: bytes) -> bytes | None:
        while (connection := self._from.get(key)) is not None and connection in self._open:
            self._receive(connection)
        return self._cache.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self._cache.put(key, value)

    def close(self) -> None:
        for connection in self._open:
            connection.close()

    def _receive(self, connection: Connection) -> None:
        try:
            arrived: list[tuple[bytes, bytes]] = connection.recv()
        except (EOFError, OSError):  # the process died, perhaps in the middle of a message
            connection.close()
            self._open.remove(connection)
            return
        for key, value in arrived:
            self._from.pop(key, None)
            self._cache.put(key, value)


def _read(files: _Files, connection: Connection) -> None:
    """Send what the local rules find in files, some files at a time. Nobody takes that in before the program was run:
    until then, who runs it goes first."""
    gc.disable()
    os.nice(BEHIND)
    for first in range(0, len(files), AT_ONCE):
        connection.send([parsed(path, raw).kept() for path, raw in files[first : first + AT_ONCE]])


def _cores() -> int:
    """How many cores this process may use; where the system does not say which, all there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _has_one_thread() -> bool:
    """Whether nothing else runs in this process, not even a thread that Python knows nothing of."""
    threads = Path("/proc/self/task")
    return threads.exists() and len(list(threads.iterdir())) == 1
