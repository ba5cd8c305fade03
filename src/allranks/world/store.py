"""Define the key-value store that all ranks see. It is the only thing that a backend must provide."""

from __future__ import annotations

import threading
from typing import Protocol

from allranks.errors import KeyTimeout


class KeyValueStore(Protocol):
    """A store that all ranks see. Keys are ``/``-separated words, values are bytes.

    Every method may raise StoreError if the store has ended.
    """

    def set(self, key: str, value: bytes) -> None:
        """Set the value of a key, whether or not it had a value."""

    def get(self, key: str) -> bytes | None:
        """Return the value that the key has now, or None if it has none."""

    def wait(self, key: str, timeout: float) -> bytes:
        """Wait until the key has a value, and return the value. Raises KeyTimeout after ``timeout`` seconds."""

    def claim(self, key: str, value: bytes) -> bytes:
        """Set the value if the key has none; return the value that the key has then. Atomic over all ranks."""

    def add(self, key: str, amount: int) -> int:
        """Add ``amount`` to a counter that starts at 0, atomically over all ranks; return its new value."""

    def delete(self, key: str) -> None:
        """Remove the key if it is there."""

    def list(self, prefix: str) -> dict[str, bytes]:
        """Return the keys that start with ``prefix`` (which ends in ``/``), with their values.

        Counters may be missing.
        """


class LocalStore:
    """A store inside one process, safe for threads: for a world of one rank, and for the state of a simulated world."""

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
    """Return the error that ``wait`` raises for a key that no rank has set within ``seconds``."""
    return KeyTimeout(
        f"key-value store: no rank set the key {key!r} within {seconds:g} s.",
        remedy="Look at the rank that sets it: that rank has failed, or is still at work.",
    )


def _first_word(key: str) -> str:
    return key.partition("/")[0]
