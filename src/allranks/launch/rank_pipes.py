"""Read what the ranks of this host print, from one pipe for each stream of each rank."""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import time
from collections import defaultdict
from collections.abc import Iterator

from allranks.launch.console import Console
from allranks.launch.merge import Stream
from allranks.process import wait_readable

CHUNK, MOST_CHUNKS = 1 << 16, 16
EVIDENCE = 80  # lines of a rank: about one stack of each thread


_limits_of_ranks: list[int] = []


@contextlib.contextmanager
def raised_descriptor_limit(more: int) -> Iterator[int]:
    """Let this process open ``more`` files, as far as its hard limit allows. Yield the limit that ranks should have.

    That is the limit before the first raise: programs that use ``select`` fail with descriptors from 1024 on.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed, unlimited = more + len(os.listdir("/proc/self/fd")), resource.RLIM_INFINITY
    if soft != unlimited and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed if hard == unlimited else min(needed, hard), hard))
    _limits_of_ranks.append(_limits_of_ranks[0] if _limits_of_ranks else soft)
    try:
        yield _limits_of_ranks[0]
    finally:
        _limits_of_ranks.pop()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class RankPipes:
    """The pipes of the ranks of one job. Their read ends are registered with ``selector``; ``close`` closes them.

    The data of a registration are the last two arguments of ``read``.
    """

    def __init__(self, selector: selectors.BaseSelector, console: Console) -> None:
        self._selector, self._console = selector, console
        self._pipes: dict[int, dict[int, Stream]] = defaultdict(dict)  # rank -> descriptor -> stream
        self._is_reading = True

    @property
    def has_open(self) -> bool:
        """Whether a process may still print."""
        return any(self._pipes.values())

    def open(self, rank: int) -> tuple[int, int]:
        """Return descriptors for the stdout and stderr of a rank. The caller must close them."""
        streams: tuple[Stream, Stream] = ("out", "err")
        ends = []
        for stream in streams:
            reader, writer = os.pipe2(os.O_CLOEXEC)
            self._pipes[rank][reader] = stream
            if self._is_reading:
                self._selector.register(reader, selectors.EVENT_READ, (rank, stream))
            ends.append(writer)
        return ends[0], ends[1]

    def read(self, fd: object, rank: int, stream: Stream) -> None:
        """Read a chunk from a pipe that is readable, and pass it to the console."""
        assert isinstance(fd, int)
        data = os.read(fd, CHUNK)
        if data:
            self._console.feed(rank, stream, data, time.monotonic())
            return
        self._console.end(rank, stream, time.monotonic())
        self._selector.unregister(fd)
        del self._pipes[rank][fd]
        os.close(fd)

    def last_lines(self, rank: int) -> tuple[str, ...]:
        """Read the pipes of a rank, and return the last lines that the rank has printed by now."""
        for fd, stream in [*self._pipes[rank].items()] if self._is_reading else []:
            for _ in range(MOST_CHUNKS):
                if fd not in self._pipes[rank] or not wait_readable([fd], 0):
                    break
                self.read(fd, rank, stream)
        return self._console.tail(rank, EVIDENCE)

    def read_or_pause(self, reading: bool) -> None:
        """Stop or resume reading. The ranks wait while nobody reads what they print."""
        if reading is self._is_reading:
            return
        self._is_reading = reading
        for rank, pipes in self._pipes.items():
            for fd, stream in pipes.items():
                if reading:
                    self._selector.register(fd, selectors.EVENT_READ, (rank, stream))
                else:
                    self._selector.unregister(fd)

    def close(self) -> None:
        for pipes in self._pipes.values():
            for fd in pipes:
                os.close(fd)
