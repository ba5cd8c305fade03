"""Let the probe see the batches that a loader gives to the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Shown in the place of a batch at the end of a loader.
END = object()


class Batches:
    """An iterator that also passes each batch to ``show``."""

    def __init__(self, inner: Any, show: Callable[[int, Any], None], is_over: Callable[[], bool]) -> None:
        self._inner, self._show, self._is_over, self._count = inner, show, is_over, 0

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        if self._is_over():
            raise StopIteration
        try:
            batch = next(self._inner)
        except StopIteration:
            self._show(self._count, END)
            raise
        self._show(self._count, batch)
        self._count += 1
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
