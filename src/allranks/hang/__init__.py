"""Detect hangs: send heartbeats of the training thread, find out which rank waits for which, and print one report."""

from collections.abc import Iterator as _Iterator
from contextlib import contextmanager as _contextmanager

from allranks.world.progress import progress as _progress


@_contextmanager
def evaluation() -> _Iterator[None]:
    """Mark the ``with`` block as an evaluation: for a hang in it, the limit of evaluations holds.

    A rank may call it without the others. Lightning's and transformers' own evaluations are known without it.
    """
    before, _progress.stage = _progress.stage, "evaluation"
    try:
        yield
    finally:
        _progress.stage = before
