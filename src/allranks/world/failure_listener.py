"""What a rank learns of the others outside of exchanges: where a missing one is, and that there is news."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from allranks.world.store import KeyValueStore


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


class HearingStore(KeyValueStore, Protocol):
    """A store in which a thread may listen until the process ends."""

    def hear(self, key: str) -> bool:
        """Wait for a key without a deadline. False once this process has begun to leave the store."""


class WakeUp:
    """One rank's ear and hand. ``hear`` is for one thread, ``ring`` for any."""

    def __init__(self, store: HearingStore) -> None:
        self._store = store
        self._heard = 0

    def hear(self) -> bool:
        """Wait for the next ring. False when there will be none any more."""
        if not self._store.hear(f"bell/{self._heard + 1}"):
            return False
        self._heard += 1
        return True

    def ring(self) -> None:
        """Wake whoever listens, on every rank."""
        bell = self._heard + 1
        while self._store.get(f"bell/{bell}") is not None:
            bell += 1
        self._store.set(f"bell/{bell}", b"1")
