"""CUDA streams, events and graphs of a process whose tensors are on the CPU: all work is done when a call returns."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

_LOCAL = threading.local()
_NUMBERS = itertools.count(1)


class Event:
    """The replacement of ``torch.cuda.Event``: the moment of its record."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._at = 0.0

    def record(self, stream: Any = None) -> Event:  # noqa: ARG002 - torch's signature
        self._at = time.perf_counter()
        return self

    def wait(self, stream: Any = None) -> None:
        """Do nothing: the work before the event is done."""

    def synchronize(self) -> None:
        """Do nothing: the work before the event is done."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Event) -> float:
        """Return the milliseconds between two records."""
        return 1000 * (end._at - self._at)


class Stream:
    """The replacement of ``torch.cuda.Stream``: its work is done at once."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device, self.priority = device, priority
        self.stream_id = self.cuda_stream = next(_NUMBERS)

    def record_event(self, event: Event | None = None) -> Event:
        return (event or Event()).record(self)

    def wait_event(self, event: Any) -> None:
        """Do nothing: the work before the event is done."""

    def wait_stream(self, stream: Any) -> None:
        """Do nothing: the work of the stream is done."""

    def synchronize(self) -> None:
        """Do nothing: the work of the stream is done."""

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def __enter__(self) -> Stream:
        _stack().append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _stack().pop()


def _stack() -> list[Stream]:
    if not hasattr(_LOCAL, "streams"):
        _LOCAL.streams = [Stream()]
    return _LOCAL.streams  # type: ignore[no-any-return]


def current_stream(device: Any = None) -> Stream:  # noqa: ARG001 - torch's signature
    """Return the current stream of this thread."""
    return _stack()[-1]


def default_stream(device: Any = None) -> Stream:  # noqa: ARG001 - torch's signature
    """Return the first stream of this thread."""
    return _stack()[0]


def set_stream(stream: Stream | None) -> None:
    """Make a stream the current one."""
    if stream is not None:
        _stack()[-1] = stream


class StreamContext:
    """The replacement of ``torch.cuda.StreamContext``: a stream is the current one in a ``with`` block."""

    def __init__(self, stream: Stream | None) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        if self._stream is not None:
            self._stream.__enter__()

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.__exit__()


def make_graphed_callables(callables: Any, *_: Any, **__: Any) -> Any:
    """Return the callables: they run without a graph."""
    return callables


class CUDAGraph:
    """The replacement of ``torch.cuda.CUDAGraph`` and ``torch.cuda.graph``, which cannot be made.

    The calls that a graph captures cannot be replayed here.
    """

    def __init__(self, *_: Any, **__: Any) -> None:
        raise RuntimeError(
            "a rehearsal on the CPU cannot capture CUDA graphs. Turn them off in the rehearsal's configuration."
        )


REPLACEMENTS: dict[str, Callable[..., Any]] = {
    "Stream": Stream,
    "ExternalStream": Stream,
    "Event": Event,
    "current_stream": current_stream,
    "default_stream": default_stream,
    "set_stream": set_stream,
    "stream": lambda stream: StreamContext(stream),
    "StreamContext": StreamContext,
    "make_graphed_callables": make_graphed_callables,
    "CUDAGraph": CUDAGraph,
    "graph": CUDAGraph,
}
