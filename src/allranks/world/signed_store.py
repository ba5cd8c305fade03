"""Sign each value in a store, so that only the ranks of the job decide what the job does.

The stores of torch and JAX have no authentication: whoever reaches their port can list, read, set and delete keys. The
launcher gives each rank a secret in its environment. A value carries a signature (keyed BLAKE3) of its key and bytes.
A value without a right one counts as missing, so a forged outcome or departure changes nothing. Who deletes keys, or
puts others in their place, can still stop the job: the ranks then wait until their timeout.
"""

from __future__ import annotations

import hmac
import sys
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from blake3 import blake3

from allranks.errors import StoreError
from allranks.world.failure_listener import HearingStore
from allranks.world.store import no_key

STORE_KEY, JOB_KEY = "ALLRANKS_STORE_KEY", "ALLRANKS_JOB_KEY"
_SIGNATURE = 16  # bytes
_NAP = 0.05  # seconds


class ServedStore(HearingStore, Protocol):
    """The store of a framework, which one of its processes serves."""

    def serves(self) -> bool: ...
    def at_end(self, farewell: Callable[[], None]) -> None: ...
    def leave(self, stop: Callable[[], None]) -> None: ...


def store_key_of(environ: Mapping[str, str]) -> str:
    """Return the secret that all ranks of the job share, or "" if there is none.

    `allranks run` makes it. Under another launcher, it is the key of the job, if the user has set one for all ranks.
    """
    return environ.get(STORE_KEY) or environ.get(JOB_KEY, "")


def signed_store(store: ServedStore, environ: Mapping[str, str]) -> ServedStore:
    """Return a store that signs, or the store itself if the ranks share no secret."""
    key = store_key_of(environ)
    return SignedStore(store, key.encode()) if key else store


class SignedStore:
    """A store whose values are signed with ``secret``. ``refused`` counts the values without a right signature.

    Counters (``add``) are not signed. Safe for threads if the store is.
    """

    def __init__(self, store: ServedStore, secret: bytes) -> None:
        self._store, self._secret = store, blake3(secret).digest()
        self.refused = 0

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, self._sign(key, value))

    def get(self, key: str) -> bytes | None:
        return self._verify(key, self._store.get(key))

    def wait(self, key: str, timeout: float) -> bytes:
        deadline = time.monotonic() + timeout
        left = timeout
        while (value := self._verify(key, self._store.wait(key, max(0.0, left)))) is None:
            time.sleep(_NAP)
            left = deadline - time.monotonic()
            if left <= 0:
                raise no_key(key, timeout)
        return value

    def claim(self, key: str, value: bytes) -> bytes:
        """Set the value if the key has none; return the value that the key has then.

        Raises StoreError if somebody else has set the key: ranks could not replace its value without a race.
        """
        there = self._verify(key, self._store.claim(key, self._sign(key, value)))
        if there is None:
            raise StoreError(
                f"key-value store: the value of {key!r} is not signed by a rank of this job, so the ranks cannot agree "
                "on one.",
                remedy="Find out which process writes into the store of this job.",
            )
        return there

    def add(self, key: str, amount: int) -> int:
        return self._store.add(key, amount)

    def delete(self, key: str) -> None:
        self._store.delete(key)

    def list(self, prefix: str) -> dict[str, bytes]:
        found = {key: self._verify(key, value) for key, value in self._store.list(prefix).items()}
        return {key: value for key, value in found.items() if value is not None}

    def hear(self, key: str) -> bool:
        return self._store.hear(key)

    def serves(self) -> bool:
        return self._store.serves()

    def at_end(self, farewell: Callable[[], None]) -> None:
        self._store.at_end(farewell)

    def leave(self, stop: Callable[[], None]) -> None:
        self._store.leave(stop)

    def _sign(self, key: str, value: bytes) -> bytes:
        return self._signature(key, value) + value

    def _signature(self, key: str, value: bytes) -> bytes:
        state = blake3(key.encode() + b"\0", key=self._secret)
        state.update(value)
        return state.digest(_SIGNATURE)

    def _verify(self, key: str, signed: bytes | None) -> bytes | None:
        """Return the value that a rank of this job has signed; None, and count it, if nobody has."""
        if signed is None:
            return None
        value = signed[_SIGNATURE:]
        if hmac.compare_digest(self._signature(key, value), signed[:_SIGNATURE]):
            return value
        self.refused += 1
        if self.refused & (self.refused - 1) == 0:  # at 1, 2, 4, 8, ...
            print(
                f"allranks: key-value store: the value of {key!r} is not signed by a rank of this job, and is ignored "
                f"({self.refused} so far). Another process writes into the store of this job.",
                file=sys.stderr,
            )
        return None
