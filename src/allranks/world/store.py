"""Define the key-value store, the only thing that a backend must provide: all ranks see it."""

from __future__ import annotations

import threading
from typing import Protocol

from allranks.errors import KeyTimeout


class KeyValueStore(Protocol):
    """Keys are ``/``-separated words, values are bytes. Every method may raise StoreError when the store has ended."""

    def set(self, key: str, value: bytes) -> None:
        """Put the value, whatever was there before."""

    def get(self, key: str) -> bytes | None:
        """Return the value now, or None."""

    def wait(self, key: str, timeout: float) -> bytes:
        """Return the value as soon as there is one. Raises KeyTimeout after ``timeout`` seconds."""

    def claim(self, key: str, value: bytes) -> bytes:
        """Put the value if there is none yet; return the one that is there now. Atomic over all ranks."""

    def add(self, key: str, amount: int) -> int:
        """Add to a counter that starts at 0, atomically over all ranks, and return its new value."""

    def delete(self, key: str) -> None:
        """Remove the key if it is there."""

    def list(self, prefix: str) -> dict[str, bytes]:
        """Return all keys that start with ``prefix`` (which ends in ``/``); counters may be missing."""


class LocalStore:
    """A store inside one process, safe for threads: the world of one, and the state behind the simulated world."""

    def __init__(self) -> None:
        # By first word, so that the short lists that every waiting rank reads do not walk all keys of 10,000 ranks.
        self._words: dict[str, dict[str, bytes]] = {}
        self._counters: dict[str, int] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        with self._changed:
            self._words.setdefault(_first_word(key), {})[key] = value
            self._changed.notify_all()

    def get(self, key: str) -> bytes | None:
        return self._words.get(_first_word(key), {}).get(key)

    def wait(self, key: str, timeout: float) -> bytes:
        with self._changed:
            if not self._changed.wait_for(lambda: self.get(key) is not None, timeout):
                raise no_key(key, timeout)
            return self._words[_first_word(key)][key]

    def claim(self, key: str, value: bytes) -> bytes:
        with self._changed:
            there = self.get(key)
            if there is None:
                self.set(key, value)
            return value if there is None else there

    def add(self, key: str, amount: int) -> int:
        with self._changed:
            self._counters[key] = self._counters.get(key, 0) + amount
            return self._counters[key]

    def delete(self, key: str) -> None:
        with self._changed:
            self._words.get(_first_word(key), {}).pop(key, None)
            self._counters.pop(key, None)

    def list(self, prefix: str) -> dict[str, bytes]:
        with self._changed:
            keys = self._words.get(_first_word(prefix), {})
            return {key: value for key, value in keys.items() if key.startswith(prefix)}


def no_key(key: str, seconds: float) -> KeyTimeout:
    """Return the error of ``wait`` for a key that no rank has set."""
    return KeyTimeout(
        f"key-value store: no rank set the key {key!r} within {seconds:g} s.",
        remedy="Look at the rank that sets it: that rank has failed, or is still at work.",
    )


def _first_word(key: str) -> str:
    return key.partition("/")[0]
