"""Make one global batch from the rows of each rank: ``allranks.global_batch``."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from allranks.arrays.detect import import_backend
from allranks.world.detect import current

T = TypeVar("T")


def global_batch(mesh: Any, rows: T, *, axis: str | tuple[str, ...] | None = None, global_rows: int | None = None) -> T:
    """Return every rank's ``rows`` as one global batch: a tree of jax.Array, divided by rows over the mesh's ``axis``.

    **Every rank must call it.** No row is sent between ranks.

    - ``mesh``: a jax.sharding.Mesh.
    - ``rows``: a tree of NumPy arrays whose first dimension counts the rows of *this* rank. The batch has the rows in
      the order of the mesh's devices.
    - ``axis``: the mesh axes that divide the batch (default: the only axis).
    - ``global_rows``: how many rows the batch must have, if given.

    Raises BatchMismatch if the rows do not add up. This means that leaves have different numbers of rows, or that rows
    do not divide over this rank's devices. It also means that the rows do not make ``global_rows``; without
    ``global_rows``, that their number differs from the call before.

    At the first rows of every new shape the ranks also compare. All raise if the shapes or dtypes of one rank differ,
    or if two ranks bring the same rows for different parts of the batch.
    """
    batch = import_backend("jax").global_batch(mesh, rows, axis=axis, global_rows=global_rows, world=current)
    return cast(T, batch)
