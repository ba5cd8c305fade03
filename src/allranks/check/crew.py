"""Many files at once: two processes more that read files, where that pays. An effect."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from allranks.check.reading import Cache, digested, key_of, missing

ENOUGH, WORKERS, AT_ONCE = 500_000, 2, 8  # bytes, processes, files


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


def read_ahead(sources: Mapping[str, bytes], cache: Cache) -> None:
    """Put what the cache lacks of these files into it, in processes of their own if there is much and cores for them.

    Little is left to whoever asks for it. The processes are forked from a process of one thread, and started anew from
    any other.
    """
    todo = missing(sources, cache)
    cores = len(os.sched_getaffinity(0))
    if sum(len(raw) for _, raw in todo) < ENOUGH or cores < 2:
        return
    # Large files first, so that no process is left with one at the end.
    todo.sort(key=lambda item: len(item[1]), reverse=True)
    how = multiprocessing.get_context("fork" if _has_one_thread() else "spawn")
    # Not a multiprocessing.Pool: one of its threads spins while there are results to be taken in.
    with ProcessPoolExecutor(min(WORKERS, cores), mp_context=how, initializer=gc.disable) as crew:
        every = crew.map(digested, *zip(*todo, strict=True), chunksize=AT_ONCE)
        for (path, raw), made in zip(todo, every, strict=True):
            cache.put(key_of(path, raw), made)


def _has_one_thread() -> bool:
    """Whether nothing else runs in this process, not even a thread that Python knows nothing of."""
    threads = Path("/proc/self/task")
    return threads.exists() and len(list(threads.iterdir())) == 1
