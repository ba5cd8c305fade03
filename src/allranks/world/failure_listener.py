"""Define how a rank learns of events on other ranks outside of exchanges: a listener, and a wake-up key."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from allranks.errors import StoreError
from allranks.world.store import KeyValueStore


class FailureListener(Protocol):
    """One rank's listener. Any thread may call its methods; no other rank need call them."""

    def locate(self, ranks: Sequence[int]) -> Mapping[int, str]:
        """Return where each of these ranks is, if that is known or if the rank answers within about two seconds."""

    def wake(self) -> None:
        """Wake the listening threads of every rank. The caller first puts the news into the store."""

    def on_wake(self, heard: Callable[[], None]) -> None:
        """Call ``heard`` now and after every wake-up, one call at a time, in a thread in which it may block."""

    def before_end(self, finish: Callable[[], object]) -> Callable[[], None]:
        """Call ``finish`` when the program ends normally, before the other ranks see it end.

        Return a function that undoes this. If ``finish`` raises, that is a failure of this rank.
        """


class SingleRankListener:
    """The listener of a world of one rank: ``wake`` calls the registered functions directly."""

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
    """A key-value store in which a thread can wait for a key until the process ends."""

    def hear(self, key: str) -> bool:
        """Wait for a key without a deadline and return True. Return False if this process is leaving the store."""


class WakeUp:
    """One rank's access to the wake-up key. Only one thread may call ``hear``; any thread may call ``wake``."""

    def __init__(self, store: HearingStore) -> None:
        self._store = store
        self._heard = 0

    def hear(self) -> bool:
        """Wait for the next wake-up and return True. Return False if this process is leaving the store."""
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


class WakeUpThread:
    """Call ``heard`` in a thread whenever ``wake`` was called since the last call of ``heard``."""

    def __init__(self, heard: Callable[[], None]) -> None:
        self._heard = heard
        self._news = threading.Event()
        self._news.set()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="allranks-listener", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._news.set()

    def stop(self) -> None:
        self._over = True
        self._news.set()
        self._thread.join()

    def _run(self) -> None:
        while self._news.wait() and not self._over:
            self._news.clear()
            try:
                self._heard()
            except StoreError:
                return  # the sentinel sees it too, and knows whether it is an end in order
