"""Compute which rows of the global batch this process must hold, given a sharding of JAX or torch."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from allranks.data.plan import rows_of_rank
from allranks.errors import DataError
from allranks.world.base import World


def rows_of_process(sharding: object, *, global_batch: int, world: World) -> tuple[int, ...]:
    """Return the rows of the global batch that this process must hold, ascending. Any single rank may call it.

    ``sharding`` is the sharding of the batch: a jax.sharding.NamedSharding, a (mesh, axis names) of jax or torch, or a
    mesh of one axis. The result has the rows of all devices of this process. With None, the rows follow the ranks.
    Raises DataError if the batch cannot be divided; the message lists the divisors.
    """
    if sharding is None:
        return tuple(rows_of_rank(world.rank, world.size, global_batch))
    for framework in ("jax", "torch"):
        if framework in sys.modules:
            found = import_adapter(framework).rows_of_process(sharding, global_batch=global_batch, rank=world.rank)
            if found is not None:
                return tuple(found)
    kind = type(sharding)
    raise DataError(
        f"rank {world.rank}: expected a sharding of the batch, found a {kind.__module__}.{kind.__qualname__}.",
        remedy="Give a jax NamedSharding, or a (mesh, axis names) of jax or torch.",
    )


def import_adapter(framework: str) -> ModuleType:
    """Import and return the module ``data/jax.py`` or ``data/torch.py``, which imports the framework."""
    return import_module(f"allranks.data.{framework}")
