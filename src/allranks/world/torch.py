"""The world over torch.distributed: the Store that the ranks met in is the store."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.rendezvous import rendezvous

from allranks.errors import KeyTimeout, StoreError
from allranks.world.signs import Decision

T = TypeVar("T")
_METHODS = ("clone", "check", "compare_set", "list_keys", "delete_key")
# Between two looks at a key: a quarter of the time waited so far, and in this range, in seconds.
_SHORTEST_NAP, _LONGEST_NAP = 20e-6, 0.05
_LISTEN_NAP = 0.2
# How long the rank that serves the store waits, at its end, for the others to end, in seconds: as long as JAX's does.
_LINGER = 300.0
# Set when all others have ended.
_EMPTY = "all_out"


class TorchStore:
    """A KeyValueStore over torch's default Store, on a connection of its own. Safe for threads.

    A wait looks again and again instead of blocking in the Store: a blocked wait would hold up this connection's other
    threads, each timeout of one is two lines of C++ log on stderr, and one that is woken while Python ends aborts the
    process.
    """

    def __init__(self, prefix: str = "allranks") -> None:
        if not dist.is_initialized():
            raise StoreError("torch.distributed is not initialised, so there is no Store to talk to.")
        # Kept as well: on the rank that serves the store, it goes when the last reference goes.
        self._served = distributed_c10d._get_default_store()
        missing = [name for name in _METHODS if not hasattr(self._served, name)]
        if missing:
            raise StoreError(
                f"torch {torch.__version__}: its Store has no {', '.join(missing)}.", remedy="Use torch >= 2.10."
            )
        served: Any = self._served  # torch's stubs do not know clone()
        self._store: Any = distributed_c10d.PrefixStore(prefix, served.clone())
        self._store.set_timeout(timedelta(seconds=60))
        self._leaving = threading.Event()
        self._size = dist.get_world_size()
        self._serves = dist.get_rank() == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True)

    def set(self, key: str, value: bytes) -> None:
        self._do("set", key, lambda: self._store.set(key, value))

    def get(self, key: str) -> bytes | None:
        return self._do("get", key, lambda: bytes(self._store.get(key)) if self._store.check([key]) else None)

    def wait(self, key: str, timeout: float) -> bytes:
        start = time.monotonic()
        while not self._do("wait", key, lambda: self._store.check([key])):
            waited = time.monotonic() - start
            if waited >= timeout:
                raise KeyTimeout(f"no key {key!r} after {timeout:g} s")
            time.sleep(min(max(waited / 4, _SHORTEST_NAP), _LONGEST_NAP, timeout - waited))
        return self._do("wait", key, lambda: bytes(self._store.get(key)))

    def claim(self, key: str, value: bytes) -> bytes:
        return self._do("claim", key, lambda: bytes(self._store.compare_set(key, b"", value)))

    def add(self, key: str, amount: int) -> int:
        return self._do("add", key, lambda: int(self._store.add(key, amount)))

    def delete(self, key: str) -> None:
        self._do("delete", key, lambda: self._store.delete_key(key))

    def list(self, prefix: str) -> dict[str, bytes]:
        keys = self._do("list", prefix, self._store.list_keys)
        found = {key: self.get(key) for key in sorted(keys) if key.startswith(prefix)}
        return {key: value for key, value in found.items() if value is not None}

    def hear(self, key: str) -> bool:
        """Wait for a key without a deadline. False once ``leave`` was called."""
        while not self._leaving.is_set():
            if self._do("hear", key, lambda: self._store.check([key])):
                return True
            self._leaving.wait(_LISTEN_NAP)
        return False

    def serves(self) -> bool:
        """Rank 0 does, but under torchrun its agent."""
        return self._serves

    def at_end(self, farewell: Callable[[], None]) -> None:
        atexit.register(farewell)

    def leave(self, stop: Callable[[], None]) -> None:
        """End ``hear`` and call ``stop``; the rank that serves the store first waits until all others have done so."""
        if self._serves:
            with contextlib.suppress(KeyTimeout):
                self.wait(_EMPTY, _LINGER)
        self._leaving.set()
        stop()
        if not self._serves and self.add("out", 1) == self._size - 1:
            self.set(_EMPTY, b"1")

    def _do(self, what: str, key: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except dist.DistError as error:
            raise StoreError(f"{what} {key!r}: torch's Store says: {str(error).splitlines()[0]}") from error


def initialised() -> tuple[int, int] | None:
    """Return (rank, size) as torch.distributed knows them, None before init_process_group()."""
    if not (dist.is_available() and dist.is_initialized()):
        return None
    return dist.get_rank(), dist.get_world_size()


def connect() -> TorchStore:
    """Return the world's store, after ``join``."""
    return TorchStore()


def join(decision: Decision, *, timeout: float) -> tuple[int, int]:
    """Initialise torch.distributed if it is not yet; return (rank, size). Every rank must call.

    The backend is torch's own default (gloo for CPU tensors, nccl for CUDA ones). ``timeout`` bounds the meeting; the
    collectives keep torch's own default timeout.
    """
    there = initialised()
    if there is not None:
        return there
    assert decision.address is not None
    assert decision.rank is not None
    assert decision.size is not None
    where = "env://" if decision.launcher == "torchrun" else f"tcp://{decision.address}"
    try:
        met = rendezvous(where, decision.rank, decision.size, timeout=timedelta(seconds=timeout))
        store, rank, size = next(met)
        # Where torch chooses, it chooses the same, but get_backend() then says "undefined", on which Lightning builds.
        backend = None if torch.accelerator.is_available() else "gloo"
        store = distributed_c10d.PrefixStore("default_pg", store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    except dist.DistError as error:
        raise decision.unmet(timeout, f"torch says: {str(error).splitlines()[0]}") from error
    return dist.get_rank(), dist.get_world_size()
