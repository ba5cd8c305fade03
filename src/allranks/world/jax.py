"""Implement the world over JAX: the store is its coordination service, and its cluster detection finds the coordinator.

JAX's client is private API (``jax._src.distributed``): it is used in this file only, and checked before use.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax._src import clusters, distributed, xla_bridge

from allranks import agent
from allranks.errors import KeyTimeout, StoreError
from allranks.world.launcher_environment import Decision
from allranks.world.processes import is_taken

T = TypeVar("T")
_CLIENT_METHODS = (
    "key_value_set_bytes",
    "key_value_try_get_bytes",
    "blocking_key_value_get_bytes",
    "key_value_increment",
    "key_value_dir_get_bytes",
    "key_value_delete",
)
_LONGEST_MS = 2**31 - 1


class JaxStore:
    """A KeyValueStore over JAX's coordination service. Safe for threads: a wait does not block other threads."""

    def __init__(self, prefix: str = "allranks/") -> None:
        client = distributed.global_state.client
        if client is None:
            raise StoreError(
                "jax.distributed is not initialised, so there is no coordination service to use. Call "
                "allranks.init() first."
            )
        missing = [name for name in _CLIENT_METHODS if not hasattr(client, name)]
        if missing:
            raise StoreError(
                f"jax {jax.__version__} has no {', '.join(missing)} in its distributed client (private API).",
                remedy="Use a jax version that this version of allranks was tested with (docs/compatibility.md).",
            )
        self._client: Any = client
        self._prefix = prefix
        self._closing = False

    def set(self, key: str, value: bytes) -> None:
        self._call_client(
            "set", key, lambda: self._client.key_value_set_bytes(self._prefix + key, value, allow_overwrite=True)
        )

    def get(self, key: str) -> bytes | None:
        try:
            return self._call_client(
                "get", key, lambda: bytes(self._client.key_value_try_get_bytes(self._prefix + key))
            )
        except _NotFoundError:
            return None

    def wait(self, key: str, timeout: float) -> bytes:
        limit = min(max(1, math.ceil(timeout * 1000)), _LONGEST_MS)
        return self._call_client(
            "wait", key, lambda: bytes(self._client.blocking_key_value_get_bytes(self._prefix + key, limit))
        )

    def claim(self, key: str, value: bytes) -> bytes:
        try:
            self._call_client(
                "claim", key, lambda: self._client.key_value_set_bytes(self._prefix + key, value, allow_overwrite=False)
            )
        except _AlreadyExistsError:
            return self.wait(key, 60.0)
        return value

    def add(self, key: str, amount: int) -> int:
        return self._call_client("add", key, lambda: int(self._client.key_value_increment(self._prefix + key, amount)))

    def delete(self, key: str) -> None:
        self._call_client("delete", key, lambda: self._client.key_value_delete(self._prefix + key))

    def list(self, prefix: str) -> dict[str, bytes]:
        found = self._call_client("list", prefix, lambda: self._client.key_value_dir_get_bytes(self._prefix + prefix))
        return {key.removeprefix(self._prefix): bytes(value) for key, value in found}

    def hear(self, key: str) -> bool:
        """Wait for a key without a deadline and return True. Return False if JAX's client is being shut down."""
        while True:
            try:
                self.wait(key, _LONGEST_MS / 1000)
                return True
            except KeyTimeout:
                continue
            except StoreError:
                if self._closing:
                    return False
                raise

    def serves(self) -> bool:
        """Return whether this is rank 0, which runs the coordination service."""
        return distributed.global_state.service is not None

    def at_end(self, farewell: Callable[[], None]) -> None:
        """Call ``farewell`` right after JAX's own shutdown, which waits for all ranks.

        A thread that waits in JAX's client must have ended before Python does: one that returns from C++ into an
        interpreter that is shutting down aborts the process (Python < 3.14).
        """
        state: Any = distributed.global_state
        ordinary = state.shutdown

        def shutdown() -> None:
            self._closing = True
            ordinary()
            farewell()

        state.shutdown = shutdown

    def leave(self, stop: Callable[[], None]) -> None:
        """Call ``stop``. JAX's shutdown has already waited for the other ranks, and has ended ``hear``."""
        stop()

    def _call_client(self, what: str, key: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except jax.errors.JaxRuntimeError as error:
            raise _store_error(error, f"{what} {key!r}") from error


class _NotFoundError(StoreError):
    pass


class _AlreadyExistsError(StoreError):
    pass


def _store_error(error: Exception, what: str) -> StoreError:
    text = str(error)
    code = text.partition(":")[0]
    kind = {
        "DEADLINE_EXCEEDED": KeyTimeout,
        "NOT_FOUND": _NotFoundError,
        "ALREADY_EXISTS": _AlreadyExistsError,
    }.get(code, StoreError)
    return kind(f"{what}: JAX's coordination service says: {text.splitlines()[0]}")


def connect() -> JaxStore:
    """Return the world's store. Call after ``join``."""
    return JaxStore()


def initialised() -> tuple[int, int] | None:
    """Return (rank, size) as jax.distributed knows them, or None before ``jax.distributed.initialize()``."""
    state = distributed.global_state
    return None if state.client is None else (state.process_id, state.num_processes)


def backend_started() -> bool:
    """Return whether JAX has already started a backend. After that, JAX cannot join other ranks."""
    return bool(xla_bridge.backends_are_initialized())


def detected_cluster() -> str | None:
    """Return the name of the cluster that JAX detects around this process (``k8s``, ``gketpu`` ...), or None."""
    for cluster in clusters.ClusterEnv._cluster_types:
        if not cluster.opt_in_only_method and cluster.is_env_present():
            return cluster.name or cluster.__name__
    return None


def join(decision: Decision, *, timeout: float) -> tuple[int, int]:
    """Initialise jax.distributed if it is not initialised yet; return (rank, size). Every rank must call.

    ``timeout`` is in seconds.
    """
    there = initialised()
    if there is not None:
        return there
    deadline = time.monotonic() + timeout
    if decision.address is None:
        jax.distributed.initialize(initialization_timeout=max(1, math.ceil(timeout)))
    else:
        if decision.rank != 0 and not agent.load("allranks_agent_jax").await_coordinator(decision.address, timeout):
            raise decision.unmet(timeout, "rank 0 does not listen there.")  # JAX would abort
        if decision.rank == 0 and is_taken(decision.address):
            raise decision.port_taken()
        jax.distributed.initialize(
            coordinator_address=decision.address,
            num_processes=decision.size,
            process_id=decision.rank,
            local_device_ids=decision.local_devices,
            cluster_detection_method="deactivate",
            coordinator_bind_address=agent.load("allranks_agent_loopback").jax_bind_address(decision.address),
            initialization_timeout=max(1, math.ceil(deadline - time.monotonic())),
        )
    return distributed.global_state.process_id, distributed.global_state.num_processes
