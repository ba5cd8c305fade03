"""Define how a rank learns of the others outside of exchanges: a listener, and a wake-up key in the store."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from allranks.world.store import KeyValueStore


class FailureListener(Protocol):
    """One rank's listener. Its methods are for any thread; no other rank need call them."""

    def locate(self, ranks: Sequence[int]) -> Mapping[int, str]:
        """Return where ranks are, as far as that is known or they answer in a moment."""

    def wake(self) -> None:
        """Wake the listening threads of every rank; put the news into the store before."""

    def on_wake(self, heard: Callable[[], None]) -> None:
        """Call ``heard`` now, and after every wake-up: in a thread where it may block, one call at a time."""

    def before_end(self, finish: Callable[[], object]) -> Callable[[], None]:
        """Call ``finish`` when the program ends in order, before the others see it end; return the undo.

        An exception of it is a failure of this rank.
        """


class SingleRankListener:
    """The listener of a world of one: ``wake`` itself calls the listening functions."""

    def __init__(self) -> None:
        self._heard: list[Callable[[], None]] = []
        self._lock = threading.RLock()

    def locate(self, ranks: Sequence[int]) -> Mapping[int, str]:
        del ranks
        return {}

    def wake(self) -> None:
        with self._lock:
            for heard in self._heard:
                heard()

    def on_wake(self, heard: Callable[[], None]) -> None:
        with self._lock:
            self._heard.append(heard)
            heard()

    def before_end(self, finish: Callable[[], object]) -> Callable[[], None]:
        atexit.register(finish)
        return lambda: atexit.unregister(finish)


class HearingStore(KeyValueStore, Protocol):
    """A store in which a thread may wait for a key until the process ends."""

    def hear(self, key: str) -> bool:
        """Wait for a key without a deadline. Returns False once this process has begun to leave the store."""


class WakeUp:
    """One rank's wake-up key. ``hear`` is for one thread, ``wake`` for any."""

    def __init__(self, store: HearingStore) -> None:
        self._store = store
        self._heard = 0

    def hear(self) -> bool:
        """Wait for the next wake-up. Returns False when there will be none any more."""
        if not self._store.hear(f"bell/{self._heard + 1}"):
            return False
        self._heard += 1
        return True

    def wake(self) -> None:
        """Wake the listening thread of every rank."""
        bell = self._heard + 1
        while self._store.get(f"bell/{bell}") is not None:
            bell += 1
        self._store.set(f"bell/{bell}", b"1")
