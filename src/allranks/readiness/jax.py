"""What JAX says of this process: devices, keys, and which of XLA's flags it has read."""

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


def started() -> bool:
    """Whether a backend has been made: XLA has read its flags then."""
    return bool(xla_bridge.backends_are_initialized())


def options_digest() -> str:
    """Return the digest of the options that XLA has made of its flags, as ``flags.OPTIONS`` says it."""
    return hashlib.sha256(xla_client.CompileOptions().SerializeAsString()).hexdigest()


def devices() -> tuple[int, str]:
    """Return how many devices this process has, and of what kind. Starts the backend."""
    mine = jax.local_devices()
    return len(mine), mine[0].device_kind


def pool() -> Row | None:
    """Return whether steps that nobody awaits can deadlock: only virtual CPU devices can."""
    count, kind = devices()
    if kind != "cpu" or count == 1:
        return None
    sizes = agent.load("allranks_agent_pool")
    needed = sizes.THREADS_A_DEVICE * count
    if hasattr(xla_client.make_cpu_client, "__wrapped__"):
        return ok("un-awaited steps", f"XLA's pool has {max(needed, sizes.threads())} threads for {count} devices")
    if sizes.threads() >= needed:
        return ok("un-awaited steps", f"XLA's pool has {sizes.threads()} threads for {count} devices")
    found = f"XLA's pool has {sizes.threads()} threads for {count} devices: steps that nobody awaits can deadlock"
    return warning("un-awaited steps", found, remedy=f"Start with NPROC={needed}, or with allranks run.")


def as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """Return what this process holds of a jax.Array, keys as their words in a last dimension; None for others."""
    if not isinstance(value, jax.Array):
        return None
    data = jax.random.key_data(value) if _is_key_type(value.dtype) else value
    if data.is_fully_addressable:
        return np.asarray(data)
    mine = {str(shard.index): np.asarray(shard.data) for shard in data.addressable_shards}
    return cast("np.ndarray[Any, Any]", np.concatenate(list(mine.values())) if data.ndim else next(iter(mine.values())))


def is_key(value: Any) -> bool:
    """Whether an array holds keys: typed ones, or words of the older kind."""
    return isinstance(value, jax.Array) and _is_key_type(value.dtype)


def _is_key_type(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))
