"""Batches on their way to the devices while the one before is computed on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from allranks.errors import DataError

A = TypeVar("A")
B = TypeVar("B")


def under_way(batches: Iterable[A], place: Callable[[A], B], *, ahead: int = 2) -> Iterator[tuple[A, B]]:
    """Yield every batch with what ``place`` makes of it, which may go on behind: ``ahead`` more are placed by then.

    A batch is taken when it is yielded: who counts what was trained on counts there, not in ``batches``. With
    ``ahead=1`` there are two buffers. Raises DataError for an ``ahead`` below 1.
    """
    if ahead < 1:
        raise DataError(f"ahead is {ahead}.", remedy="It must be at least 1.")
    return _under_way(batches, place, ahead)


def _under_way(batches: Iterable[A], place: Callable[[A], B], ahead: int) -> Iterator[tuple[A, B]]:
    placed: deque[tuple[A, B]] = deque()
    for batch in batches:
        placed.append((batch, place(batch)))
        if len(placed) > ahead:
            yield placed.popleft()
    yield from placed
