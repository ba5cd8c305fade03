"""Let the probe see the batches that a loader gives to the program."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

# Shown in the place of a batch at the end of a loader.
END = object()


class Batches:
    """An iterator that also passes each batch to ``show``. Once ``is_over`` returns True, it ends after one batch.

    So a validation after the last step has a batch of which it can take the mean. A program that then takes a batch
    outside a ``for`` loop is ended, with exit code 0.
    """

    def __init__(self, inner: Any, show: Callable[[int, Any], None], is_over: Callable[[], bool]) -> None:
        self._inner, self._show, self._is_over, self._count = inner, show, is_over, 0

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        if self._is_over():
            if not _is_in_for_loop(sys._getframe(1)):
                raise SystemExit(0)  # the program takes a batch by next(), and needs one
            if self._count:
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


def _is_in_for_loop(frame: FrameType) -> bool:
    """Return whether a ``for`` loop asks for the next item, directly or through enumerate, zip and the like."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] == "FOR_ITER"
