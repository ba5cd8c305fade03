"""Check JAX's collectives across processes on the CPU against known answers (JAX issue 40830: psum_scatter)."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_ELEMENTS = 1 << 20  # of float32: 4 MiB on each device


def check() -> None:
    """Sum, gather and scatter 4 MiB of each device. Raise ValueError if a result is wrong. All ranks must call it."""
    config: Any = jax.config
    config.update("jax_platforms", "cpu")  # whatever the environment wants
    jax.distributed.initialize()
    size = jax.device_count()
    mesh = Mesh(np.array(jax.devices()), ("d",))
    split = PartitionSpec("d")  # type: ignore[no-untyped-call]
    pattern = np.arange(_ELEMENTS // size * size, dtype=np.float32) % 251
    rows = pattern * np.arange(1, size + 1, dtype=np.float32)[:, None]
    given = jax.make_array_from_callback(rows.shape, NamedSharding(mesh, split), lambda index: rows[index])
    total = pattern * (size * (size + 1) // 2)
    program = jax.shard_map(_collectives, mesh=mesh, in_specs=split, out_specs=(split, split, split))
    expected = np.broadcast_to(total, rows.shape), np.broadcast_to(rows.ravel(), (size, rows.size)), total
    for name, result, wanted in zip(
        ("psum", "all_gather", "psum_scatter"), jax.jit(program)(given), expected, strict=True
    ):
        for shard in result.addressable_shards:
            wrong = np.flatnonzero(np.asarray(shard.data) != wanted[shard.index])
            if wrong.size:
                raise ValueError(f"JAX's {name} of 4 MiB is wrong in {wrong.size} elements, the first at {wrong[0]}")


def _collectives(row: Any) -> tuple[Any, Any, Any]:
    collectives: Any = lax
    return (
        collectives.psum(row, "d"),
        collectives.all_gather(row[0], "d", tiled=True)[None],
        collectives.psum_scatter(row[0], "d", tiled=True),
    )
