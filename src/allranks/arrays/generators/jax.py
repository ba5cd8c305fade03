"""Provide the adapter for the random keys of JAX: typed (``jax.random.key``) and raw (``jax.random.PRNGKey``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from allranks.arrays.generators.base import GlobalState

_WORD = 32


def owns(generator: object) -> bool:
    if not isinstance(generator, jax.Array):
        return False
    return _is_typed(generator) or (generator.dtype == jnp.uint32 and generator.shape in ((2,), (4,)))


def _is_typed(key: Any) -> bool:
    return bool(jnp.issubdtype(key.dtype, jax.dtypes.prng_key))


def of_module(_name: str) -> None:
    return None


def state_of(generator: Any) -> bytes:
    bits = jax.random.key_data(generator) if _is_typed(generator) else generator
    return np.asarray(bits).tobytes()


def reseed(generator: Any, seed: int) -> Any:
    key = generator
    for word in range(4):
        key = jax.random.fold_in(key, seed >> (word * _WORD) & 0xFFFFFFFF)
    return key


def global_states() -> Iterator[GlobalState]:
    yield from ()  # every draw takes a key
