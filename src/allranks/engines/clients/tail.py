"""Read the lines of a file that a job still writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

_POLL = 0.3


def lines(path: Path, *, follow: bool, has_ended: Callable[[], bool]) -> Iterator[str]:
    """Yield the lines of a file; with ``follow``, until ``has_ended`` and nothing more is in it.

    The file need not exist yet. A last line without an end of line is yielded, too.
    """
    while follow and not path.exists() and not has_ended():
        time.sleep(_POLL)
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        partial, ended = "", False
        while True:
            ended = not follow or has_ended()  # before the read: what it has written by its end is read
            while line := file.readline():
                partial += line
                if partial.endswith("\n"):
                    yield partial[:-1]
                    partial = ""
            if ended:
                break
            time.sleep(_POLL)
        if partial:
            yield partial
