"""Where thousands of objects are made, and all of them kept, the garbage collector searches the program for nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def left_alone() -> Iterator[None]:
    """Have the garbage collector, if it is on, rest meanwhile, in all threads."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
