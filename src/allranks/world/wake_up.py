"""A wake-up key in the store, for which every rank listens.

``bell/<n>`` is the n-th ring. Who has news first puts it into the store, then rings a bell that has not rung yet.
Whoever hears it looks for news after that, and so sees it; two who ring one bell at a time do no harm. Nothing here
needs an atomic counter, which a rank that dies half-way would leave behind broken.
"""

from __future__ import annotations

from typing import Protocol

from allranks.world.store import KeyValueStore


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
