"""Make one global batch from the rows of each rank: ``allranks.global_batch``."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from allranks.arrays.detect import import_backend
from allranks.world.detect import current

T = TypeVar("T")


def global_batch(mesh: Any, rows: T, *, axis: str | tuple[str, ...] | None = None, global_rows: int | None = None) -> T:
    """Return every rank's ``rows`` as one global batch: a tree of jax.Array, cut along rows over the mesh's ``axis``.

    **Every rank must call it.** ``mesh`` is a jax.sharding.Mesh; ``rows`` a tree of NumPy arrays whose first dimension
    counts the rows that *this* rank brings; the batch holds them in the order of the mesh's devices. ``axis`` names the
    mesh axes that cut the batch (default: the only one). ``global_rows``, if given, is how many rows that should make.
    No row travels between ranks.

    Raises BatchMismatch on rows that do not add up: leaves with different numbers of rows, rows that do not divide over
    this rank's devices, or do not make ``global_rows``; without ``global_rows``, another number of rows than before.
    At the first rows of every new shape the ranks also compare: all raise if the shapes or dtypes of one differ, or if
    two bring the same rows for different parts of the batch.
    """
    batch = import_backend("jax").global_batch(mesh, rows, axis=axis, global_rows=global_rows, world=current)
    return cast(T, batch)
