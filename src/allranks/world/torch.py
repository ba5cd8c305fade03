"""Implement the world over torch.distributed. Its default Store is the world's key-value store."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.rendezvous import rendezvous

from allranks import agent
from allranks.errors import KeyTimeout, StoreError
from allranks.world.launcher_environment import Decision
from allranks.world.processes import is_of_this_host, is_taken
from allranks.world.store import no_key

T = TypeVar("T")
_METHODS = ("clone", "check", "compare_set", "list_keys", "delete_key")
# Seconds between two checks for a key: a quarter of the time waited so far, within this range.
_SHORTEST_NAP, _LONGEST_NAP = 20e-6, 0.05
_LISTEN_NAP = 0.2
# How long the rank that serves the store waits, at its end, for the others to end, in seconds: as long as JAX's does.
_LINGER = 300.0
# torch's Store closes the connection of a rank that sends more than 8 MiB at once; longer values go in parts.
_LONGEST = 4 << 20
_IN_PARTS = b"\0parts "
# Set when all others have ended.
_EMPTY = "all_out"


class TorchStore:
    """A KeyValueStore over torch's default Store, on a separate connection. Safe for threads.

    A wait polls instead of blocking in the Store. A blocked wait would block other threads that use this connection,
    each timeout prints two lines of C++ log on stderr, and a wait that is woken while Python ends aborts the process.
    """

    def __init__(self, prefix: str = "allranks") -> None:
        if not dist.is_initialized():
            raise StoreError(
                "torch.distributed is not initialised, so there is no Store to use. Call allranks.init() first."
            )
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
        self._rank = dist.get_rank()
        self._serves = self._rank == 0 and not _is_store_in_launcher()
        self._numbers = itertools.count()
        self._parts: dict[str, list[str]] = {}  # the parts of each key that this rank has set in parts

    def set(self, key: str, value: bytes) -> None:
        before = self._parts.pop(key, ())
        head = self._first_bytes(key, value)
        self._call_store("set", key, lambda: self._store.set(key, head))
        self._delete_keys(before)

    def get(self, key: str) -> bytes | None:
        """Return the value that the key has now, or None."""
        while True:
            head = self._read_key(key)
            if head is None or not head.startswith(_IN_PARTS):
                return head
            count, _, name = head.removeprefix(_IN_PARTS).decode().partition(" ")
            parts = [self._read_key(f"{name}/{part}") for part in range(int(count))]
            if None not in parts:  # else the key was set again or deleted meanwhile
                return b"".join(part for part in parts if part is not None)

    def wait(self, key: str, timeout: float) -> bytes:
        start = time.monotonic()
        while not self._call_store("wait", key, lambda: self._store.check([key])):
            waited = time.monotonic() - start
            if waited >= timeout:
                raise no_key(key, timeout)
            time.sleep(min(max(waited / 4, _SHORTEST_NAP), _LONGEST_NAP, timeout - waited))
        value = self.get(key)
        return self.wait(key, timeout) if value is None else value

    def claim(self, key: str, value: bytes) -> bytes:
        head = self._first_bytes(key, value)
        there = self._call_store("claim", key, lambda: bytes(self._store.compare_set(key, b"", head)))
        if there == head:
            return value
        self._delete_keys(self._parts.pop(key, ()))
        return self.wait(key, 0) if there.startswith(_IN_PARTS) else there

    def add(self, key: str, amount: int) -> int:
        return self._call_store("add", key, lambda: int(self._store.add(key, amount)))

    def delete(self, key: str) -> None:
        self._call_store("delete", key, lambda: self._store.delete_key(key))
        self._delete_keys(self._parts.pop(key, ()))

    def list(self, prefix: str) -> dict[str, bytes]:
        keys = self._call_store("list", prefix, self._store.list_keys)
        found = {key: self.get(key) for key in sorted(keys) if key.startswith(prefix)}
        return {key: value for key, value in found.items() if value is not None}

    def hear(self, key: str) -> bool:
        """Wait for a key without a deadline and return True. Return False once ``leave`` was called."""
        while not self._leaving.is_set():
            if self._call_store("hear", key, lambda: self._store.check([key])):
                return True
            self._leaving.wait(_LISTEN_NAP)
        return False

    def serves(self) -> bool:
        """Return whether this rank serves the store. Rank 0 does, except under torchrun, whose agent serves it."""
        return self._serves

    def at_end(self, farewell: Callable[[], None]) -> None:
        atexit.register(farewell)

    def leave(self, stop: Callable[[], None]) -> None:
        """End ``hear`` and call ``stop``. The rank that serves the store first waits until all others have left."""
        if self._serves:
            with contextlib.suppress(KeyTimeout):
                self.wait(_EMPTY, _LINGER)
        self._leaving.set()
        stop()
        if not self._serves and self.add("out", 1) == self._size - 1:
            self.set(_EMPTY, b"1")

    def _read_key(self, key: str) -> bytes | None:
        return self._call_store("get", key, lambda: bytes(self._store.get(key)) if self._store.check([key]) else None)

    def _first_bytes(self, key: str, value: bytes) -> bytes:
        """Return the bytes to set for the key: the value, or, for a long value, a reference to its stored parts."""
        if len(value) <= _LONGEST:
            return value
        name = f"parts/{self._rank}-{next(self._numbers)}"
        parts = self._parts[key] = [f"{name}/{part}" for part in range(-(-len(value) // _LONGEST))]
        for index, part in enumerate(parts):
            piece = value[index * _LONGEST : (index + 1) * _LONGEST]
            self._call_store("set", key, functools.partial(self._store.set, part, piece))
        return _IN_PARTS + f"{len(parts)} {name}".encode()

    def _delete_keys(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._call_store("delete", key, functools.partial(self._store.delete_key, key))

    def _call_store(self, what: str, key: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except dist.DistError as error:
            raise StoreError(f"{what} {key!r}: torch's Store says: {str(error).splitlines()[0]}") from error


def initialised() -> tuple[int, int] | None:
    """Return (rank, size) as torch.distributed knows them, or None before ``init_process_group()``."""
    if not (dist.is_available() and dist.is_initialized()):
        return None
    return dist.get_rank(), dist.get_world_size()


def connect() -> TorchStore:
    """Return the world's store. Call after ``join``."""
    return TorchStore()


def join(decision: Decision, *, timeout: float) -> tuple[int, int]:
    """Initialise torch.distributed if it is not initialised yet; return (rank, size). Every rank must call.

    The backend is torch's default (gloo for CPU tensors, nccl for CUDA tensors). ``timeout`` is in seconds and limits
    the rendezvous; the collectives keep torch's default timeout.
    """
    there = initialised()
    if there is not None:
        return there
    # Where torch chooses, it chooses the same, but get_backend() then says "undefined", on which Lightning builds.
    backend = None if torch.accelerator.is_available() else "gloo"
    if decision.size == 1:
        store_of_one = dist.HashStore()  # type: ignore[attr-defined]  # torch's stubs do not export it
        dist.init_process_group(backend, store=store_of_one, rank=0, world_size=1)
        return 0, 1
    assert decision.address is not None
    assert decision.rank is not None
    assert decision.size is not None
    where = "env://" if decision.launcher == "torchrun" else f"tcp://{decision.address}"
    if decision.rank == 0 and not _is_store_in_launcher():
        if (
            decision.launcher == "Open MPI"
            and "MASTER_ADDR" not in os.environ
            and not is_of_this_host(decision.address)
        ):
            raise decision.elsewhere()
        if is_taken(decision.address):
            raise decision.port_taken()
    loopback = agent.load("allranks_agent_loopback")
    loopback.bind_torch_store(sys.modules[rendezvous.__module__])
    loopback.bind_torch_gloo(decision.address)
    try:
        met = rendezvous(where, decision.rank, decision.size, timeout=timedelta(seconds=timeout))
        store, rank, size = next(met)
        store = distributed_c10d.PrefixStore("default_pg", store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    except dist.DistError as error:
        raise decision.unmet(timeout, f"torch says: {str(error).splitlines()[0]}") from error
    return dist.get_rank(), dist.get_world_size()


def _is_store_in_launcher() -> bool:
    """Return whether torchrun's own process listens at MASTER_PORT, so that rank 0 need not serve the store."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
