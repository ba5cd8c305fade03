"""Compute fingerprints of JAX arrays on their devices: one pass, one program for all devices of a process.

No program here has a collective or uses a device of another process. So none can wait for another rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from allranks.consistency.fingerprint import MIX_1, MIX_2, WORD, Fingerprint, K, M, WordLayout, used_bits

_Spec: Any = PartitionSpec  # its constructor is not typed


def fingerprints(leaves: Sequence[tuple[Sequence[Any], Sequence[WordLayout]]]) -> list[list[Fingerprint]]:
    """Return the fingerprints of each leaf, one for each of its boxes.

    A leaf is given as one array for each device, and the layout of the words of each box.
    """
    started = [_start_fingerprint(parts, word_layouts) for parts, word_layouts in leaves]
    fetched = jax.device_get(started)  # all these devices are this process' own
    return [[(int(h), int(g)) for h, g in np.reshape(found, (-1, 2))] for found in fetched]


def _start_fingerprint(parts: Sequence[Any], word_layouts: Sequence[WordLayout]) -> Any:
    """Start the computation for one leaf; return device arrays that will hold the fingerprints."""
    shape, dtype = parts[0].shape, parts[0].dtype
    box = word_layouts[0].lengths, word_layouts[0].strides
    bases = np.array([word_layout.base for word_layout in word_layouts], np.uint32)
    with jax.enable_x64(True) if dtype.itemsize >= 8 else nullcontext():
        if len(parts) == 1 or not shape:
            alone = zip(parts, bases, strict=True)
            return [_on_one(part, base, lengths=box[0], strides=box[1]) for part, base in alone]
        across, program = _on_many(tuple(part.device for part in parts), *box)
        whole = jax.make_array_from_single_device_arrays((len(parts) * shape[0], *shape[1:]), across, list(parts))
        return program(whole, jax.device_put(bases, across))


@partial(jax.jit, static_argnames=("lengths", "strides"))
def _on_one(part: Any, base: Any, *, lengths: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    words = _as_uint32(part).reshape(lengths)
    keys = jnp.full(lengths, base * np.uint32(K))
    for axis, stride in enumerate(strides):
        keys += lax.broadcasted_iota(np.uint32, lengths, axis) * np.uint32(stride * K & WORD)
    h = words ^ keys
    h = (h ^ (h >> 16)) * np.uint32(MIX_1)
    h = (h ^ (h >> 13)) * np.uint32(MIX_2)
    h ^= h >> 16
    g = (h + keys) * np.uint32(M)
    g ^= g >> 15
    return jnp.stack([h.sum(dtype=np.uint32), g.sum(dtype=np.uint32)])


@lru_cache(maxsize=1 << 12)
def _on_many(
    devices: tuple[Any, ...], lengths: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[NamedSharding, Callable[[Any, Any], Any]]:
    """Return the program for boxes of equal shape, one on each device, and the sharding of the program's inputs."""
    mesh, split = Mesh(np.array(devices), "copy"), _Spec("copy")

    def of_one(part: Any, base: Any) -> Any:
        return _on_one(part, base[0], lengths=lengths, strides=strides)

    mapped = jax.shard_map(of_one, mesh=mesh, in_specs=(split, split), out_specs=split)
    return NamedSharding(mesh, split), jax.jit(mapped)


def _as_uint32(part: Any) -> Any:
    """Return the bits of an array as 32-bit words. If an element has several words, they form a last dimension."""
    dtype = part.dtype
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return jnp.stack([_as_uint32(lax.real(part)), _as_uint32(lax.imag(part))], axis=part.ndim)
    if dtype == jnp.bool_:
        return part.astype(np.uint32)
    if dtype.itemsize >= 4:
        return lax.bitcast_convert_type(part, np.uint32)
    return lax.bitcast_convert_type(part, f"uint{used_bits(dtype.name, dtype.itemsize)}").astype(np.uint32)
