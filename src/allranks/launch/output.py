"""Write bytes to a terminal, a pipe or a file without ever waiting for its reader.

A pager that nobody scrolls, and a terminal stopped with Ctrl-S, accept no bytes. A launcher that waits for them cannot
see that a rank has died. So the bytes are queued here instead, and ``is_full`` tells the caller to stop writing.
"""

from __future__ import annotations

import io
import os
import select
import stat
from collections import deque
from typing import BinaryIO, TextIO

from allranks.errors import AllranksError
from allranks.launch.merge import Stream

FULL = 1 << 20  # bytes
_ALL = 1 << 20


class OutputClosed(AllranksError):
    """Raised when nobody reads the launcher's output any more (``| head``, a closed terminal), or its disk is full.

    Raised once. Later output is dropped here and still kept in the log files.
    """


class OutputQueue:
    """A queue of bytes for a file descriptor.

    If ``out`` has no descriptor (it is in memory), they go to ``out`` itself.
    """

    def __init__(self, out: BinaryIO | TextIO) -> None:
        out.flush()
        self._memory = out.buffer if isinstance(out, TextIO | io.TextIOWrapper) else out
        self._waiting: deque[memoryview] = deque()
        self._size = 0
        self._poll = select.poll()
        self.closed = False
        try:
            self._fd = out.fileno()
        except OSError:
            self._fd = -1
            return
        self._poll.register(self._fd, select.POLLOUT)
        # What says that it is ready takes PIPE_BUF bytes without blocking, more perhaps not; a file always takes all.
        self._most = _ALL if stat.S_ISREG(os.fstat(self._fd).st_mode) else select.PIPE_BUF

    @property
    def full_descriptors(self) -> int | None:
        """The descriptor that must become writable before ``pump`` can send more, or None if nothing is queued."""
        return self._fd if self._waiting else None

    @property
    def is_full(self) -> bool:
        return self._size > FULL

    def write(self, data: bytes) -> None:
        """Queue ``data``, and send the bytes that can be sent at once. Raises OutputClosed."""
        if self.closed or not data:
            return
        self._waiting.append(memoryview(data))
        self._size += len(data)
        self.pump()

    def pump(self) -> None:
        """Send the queued bytes that can be sent at once. Raises OutputClosed."""
        self._send_queued(patience_ms=0)

    def drain(self) -> None:
        """Send all queued bytes, and wait for the reader as long as necessary. Raises OutputClosed."""
        self._send_queued(patience_ms=None)

    def _send_queued(self, *, patience_ms: int | None) -> None:
        try:
            while self._waiting and (self._fd < 0 or self._poll.poll(patience_ms)):
                head = self._waiting.popleft()
                sent = os.write(self._fd, head[: self._most]) if self._fd >= 0 else self._memory.write(head)
                self._size -= sent
                if sent < len(head):
                    self._waiting.appendleft(head[sent:])
        except OSError as error:
            self.closed = True
            self._waiting.clear()
            self._size = 0
            raise OutputClosed(f"the launcher cannot write its output any more: {error}.") from error


class Outputs:
    """The two outputs of a job: the ranks' stdout goes to ``out``, all other output to ``err``.

    ``shared``: both are the same file (a terminal, ``2>&1``), or ``err`` is None. Then one queue keeps the order.
    """

    def __init__(self, out: BinaryIO | TextIO, err: BinaryIO | TextIO | None) -> None:
        self.shared = err is None or is_same_file(out, err)
        first = OutputQueue(out)
        self._all = [first] if err is None or self.shared else [first, OutputQueue(err)]
        self._of: dict[Stream, OutputQueue] = {"out": first, "err": self._all[-1]}

    @property
    def full_descriptors(self) -> frozenset[int]:
        """The descriptors that must become writable before ``pump`` can send more."""
        return frozenset(one.full_descriptors for one in self._all if one.full_descriptors is not None)

    @property
    def is_full(self) -> bool:
        return any(one.is_full for one in self._all)

    def write(self, stream: Stream, data: bytes) -> None:
        """Queue ``data`` for a stream, and send the bytes that can be sent at once. Raises OutputClosed."""
        self._of[stream].write(data)

    def pump(self) -> None:
        """Send the queued bytes of both outputs that can be sent at once. Raises OutputClosed."""
        for one in self._all:
            one.pump()

    def drain(self) -> None:
        """Send all queued bytes, and wait for the readers as long as necessary. Raises OutputClosed."""
        for one in self._all:
            one.drain()


def is_same_file(out: BinaryIO | TextIO, err: BinaryIO | TextIO) -> bool:
    """Return whether both objects write to the same file, pipe or terminal. An object in memory equals only itself."""
    try:
        return os.path.sameopenfile(out.fileno(), err.fileno())
    except OSError:
        return out is err
