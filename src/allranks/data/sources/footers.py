"""Read footers of Parquet files in a child process, because pyarrow ends the process for some damaged footers."""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

_LENGTH = struct.Struct("<Q")
_MOST_CHILDREN, _FOOTERS_OF_CHILD = 4, 32
_PATIENCE_S = 120.0  # for one footer; they take milliseconds
_GRACE_S = 10.0  # for a child to end; a crash may write a core file
_PROGRAM = os.path.join(os.path.dirname(__file__), "footer_child.py")


class FooterError(ValueError):
    """Raised for a footer that cannot be read; the message says why."""


class FooterReaders:
    """Child processes that read footers; a context manager. Several threads may use it at once.

    The first footer starts a child, which takes about 0.2 s, and many footers start up to three more. All end with the
    context. A footer that ends its child is a FooterError, and the next footer gets a new child.
    """

    def __init__(self) -> None:
        self._free: list[_Child] = []
        self._children = self._requests = 0
        self._changed = threading.Condition()

    def __enter__(self) -> FooterReaders:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            while self._free:
                self._free.pop().end()
                self._children -= 1

    def rows_of_groups(self, footer: bytes) -> Sequence[int]:
        """Return the number of rows of each row group of a footer (without the file's first 4 bytes).

        Raises FooterError for a footer that cannot be read, and OSError if no child can be started.
        """
        child = self._free_child()
        kept = None
        try:
            child = child or _Child()
            answer = json.loads(child.request(footer))
            kept = child
        except EOFError as error:
            assert child is not None
            raise FooterError(f"pyarrow {child.end()} while it read the footer") from error
        finally:
            self._give_back(kept)
        if isinstance(answer, str):
            raise FooterError(answer)
        return [int(rows) for rows in answer]

    def _free_child(self) -> _Child | None:
        """Wait for a child that has nothing to do, and return it; None if the caller shall start one."""
        with self._changed:
            self._requests += 1
            most = min(1 + self._requests // _FOOTERS_OF_CHILD, _MOST_CHILDREN)
            self._changed.wait_for(lambda: self._free or self._children < most)
            if self._free:
                return self._free.pop()
            self._children += 1
            return None

    def _give_back(self, child: _Child | None) -> None:
        """Let the next request use a child; None if the child has ended."""
        with self._changed:
            if child is None:
                self._children -= 1
            else:
                self._free.append(child)
            self._changed.notify()


class _Child:
    """A child process, with the ``sys.path`` of this process."""

    def __init__(self) -> None:
        like_us = f"import sys; sys.path[:] = {sys.path!r}"  # before it imports anything
        program = f"{like_us}; import runpy; runpy.run_path({_PROGRAM!r}, run_name='__main__')"
        self._popen = subprocess.Popen(
            [sys.executable, "-S", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # signals to the group of this process are not for it
        )

    def request(self, footer: bytes) -> bytes:
        """Return the answer to a footer. Raises EOFError if the child ends or takes too long."""
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(_LENGTH.pack(len(footer)) + footer)
            self._popen.stdin.flush()
        except OSError as error:
            raise EOFError from error
        (size,) = _LENGTH.unpack(self._receive(_LENGTH.size))
        return self._receive(size)

    def _receive(self, count: int) -> bytes:
        assert self._popen.stdout is not None
        data = b""
        waiting = select.poll()
        waiting.register(self._popen.stdout, select.POLLIN)
        while len(data) < count:
            if not waiting.poll(_PATIENCE_S * 1000):
                raise EOFError
            more = os.read(self._popen.stdout.fileno(), count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def end(self) -> str:
        """End the child, and return a text that says how it ended. A child ends when its input does."""
        for pipe in (self._popen.stdin, self._popen.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()
        try:
            code = self._popen.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
            return f"did not answer within {_PATIENCE_S:.0f} s"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
