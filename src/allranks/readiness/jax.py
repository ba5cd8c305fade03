"""Read JAX's state in this process: devices, keys, the thread pool, and the flags that XLA has read."""

from __future__ import annotations

import hashlib
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import xla_bridge
from jaxlib import xla_client

from allranks import agent
from allranks.findings import Row, ok, warning


def is_started() -> bool:
    """Return whether a JAX backend exists. If it does, XLA has read its flags."""
    return bool(xla_bridge.backends_are_initialized())


def options_digest() -> str:
    """Return the digest of XLA's options, as ``flags.OPTIONS`` computes it."""
    return hashlib.sha256(xla_client.CompileOptions().SerializeAsString()).hexdigest()


def devices_of_process() -> tuple[int, str]:
    """Return the number of this process's devices, and their kind. Starts the backend."""
    mine = jax.local_devices()
    return len(mine), mine[0].device_kind


def thread_pool_row() -> Row | None:
    """Return a report row that says whether un-awaited steps can deadlock; None without several virtual CPUs."""
    count, kind = devices_of_process()
    if kind != "cpu" or count == 1:
        return None
    sizes = agent.load("allranks_agent_xla_threads")
    needed = sizes.THREADS_A_DEVICE * count
    if hasattr(xla_client.make_cpu_client, "__wrapped__"):
        return ok("un-awaited steps", f"XLA's pool has {max(needed, sizes.threads())} threads for {count} devices")
    if sizes.threads() >= needed:
        return ok("un-awaited steps", f"XLA's pool has {sizes.threads()} threads for {count} devices")
    found = f"XLA's pool has {sizes.threads()} threads for {count} devices: un-awaited steps can deadlock"
    return warning("un-awaited steps", found, remedy=f"Start with NPROC={needed}, or with allranks run.")


def as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """Return this process's part of a jax.Array as a NumPy array; None for other values.

    Keys become words in the last dimension.
    """
    if not isinstance(value, jax.Array):
        return None
    data = jax.random.key_data(value) if _is_key_type(value.dtype) else value
    if data.is_fully_addressable:
        return np.asarray(data)
    mine = {str(shard.index): np.asarray(shard.data) for shard in data.addressable_shards}
    return cast("np.ndarray[Any, Any]", np.concatenate(list(mine.values())) if data.ndim else next(iter(mine.values())))


def is_key(value: Any) -> bool:
    """Return whether a value is an array of typed JAX keys."""
    return isinstance(value, jax.Array) and _is_key_type(value.dtype)


def _is_key_type(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))
