"""What a rank learns of the others outside of exchanges: where a missing one is, and that there is news."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol


class FailureListener(Protocol):
    """One rank's view. Methods are for any thread, and no other rank need call them."""

    def locate(self, ranks: Sequence[int]) -> Mapping[int, str]:
        """Return where ranks are, as far as that is known or they answer in a moment."""

    def ring(self) -> None:
        """Wake what listens on every rank: put what there is to know into the store before."""

    def on_ring(self, heard: Callable[[], None]) -> None:
        """Have ``heard`` called now, and after every ring: in a thread where it may block, one call at a time."""

    def before_end(self, finish: Callable[[], object]) -> Callable[[], None]:
        """Have ``finish`` called when the program ends in order, before the others see it end; return what undoes that.

        What it raises fails this rank.
        """


class Alone:
    """The listener of a world of one: ``ring`` itself calls who listens."""

    def __init__(self) -> None:
        self._heard: list[Callable[[], None]] = []
        self._lock = threading.RLock()

    def locate(self, ranks: Sequence[int]) -> Mapping[int, str]:
        del ranks
        return {}

    def ring(self) -> None:
        with self._lock:
            for heard in self._heard:
                heard()

    def on_ring(self, heard: Callable[[], None]) -> None:
        with self._lock:
            self._heard.append(heard)
            heard()

    def before_end(self, finish: Callable[[], object]) -> Callable[[], None]:
        atexit.register(finish)
        return lambda: atexit.unregister(finish)
