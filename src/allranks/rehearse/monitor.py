"""Show the progress of a run while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Seconds between two lines.
_EVERY = 0.5


class Monitor:
    """Gives ``show`` a line about the run that is going on, twice a second, from a thread of its own.

    ``title`` is the beginning of the line: which run it is. ``found`` is how many findings there are so far.
    """

    def __init__(self, show: Callable[[str], None] | None) -> None:
        self._show = show
        self.title, self.found = "", 0
        self._begun = time.monotonic()

    def begin(self, title: str, found: int) -> None:
        """Start to count the seconds of a scenario."""
        self.title, self.found = title, found
        self._begun = time.monotonic()

    @contextmanager
    def following(self, steps: Callable[[], int]) -> Iterator[None]:
        """Show lines until the ``with`` block ends. ``steps`` returns how many steps were made."""
        if self._show is None:
            yield
            return
        is_over = threading.Event()
        thread = threading.Thread(target=self._run, args=(self._show, steps, is_over), name="allranks-monitor")
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def _run(self, show: Callable[[str], None], steps: Callable[[], int], is_over: threading.Event) -> None:
        while not is_over.wait(_EVERY):
            found = f", {self.found} finding{'' if self.found == 1 else 's'} so far" if self.found else ""
            show(f"{self.title:34} step {steps()}, {time.monotonic() - self._begun:.0f} s{found}")
