"""Iterate in a background thread, ahead of the consumer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar


class SizedItem(Protocol):
    """An object with a size."""

    def __len__(self) -> int: ...


T = TypeVar("T", bound=SizedItem)


@contextmanager
def iterate_ahead(items: Iterable[T], max_size: int) -> Iterator[Iterable[T]]:
    """Context manager: yield an iterable over ``items`` that a thread prepares ahead.

    Without a thread if ``max_size`` is 0.
    """
    if not max_size:
        yield items
        return
    made = Prefetcher(items, max_size, name="allranks-data")
    try:
        yield made
    finally:
        made.close()


class Prefetcher(Generic[T], Iterator[T]):
    """Yields the items of ``items``, which a thread prepares before they are needed.

    The thread continues as long as the lengths of the waiting items add up to less than ``most``. If ``items`` raises
    an error, the error is raised instead of the next item. The thread ends at the end of ``items``, or after ``close``.
    """

    def __init__(self, items: Iterable[T], most: int, *, name: str) -> None:
        self._most = most
        self._made: deque[T] = deque()
        self._error: BaseException | None = None
        self._ended = self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, args=(items,), name=name, daemon=True)
        self._thread.start()

    def __next__(self) -> T:
        with self._changed:
            self._changed.wait_for(lambda: self._made or self._ended)
            if self._made:
                self._changed.notify_all()
                return self._made.popleft()
        if self._error is not None:
            raise self._error
        raise StopIteration

    def close(self) -> None:
        """Stop the thread after its current item, and wait for its end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self, items: Iterable[T]) -> None:
        try:
            for item in items:
                with self._changed:
                    self._changed.wait_for(lambda: sum(map(len, self._made)) < self._most or self._closed)
                    if self._closed:
                        return
                    self._made.append(item)
                    self._changed.notify_all()
        except BaseException as error:  # whatever it is: the one who waits gets it
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()
