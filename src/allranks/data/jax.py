"""Make global jax.Arrays from the rows of a batch that this process holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding
from numpy.typing import NDArray

from allranks.arrays.jax import shards
from allranks.data.agreement import describe_rows, rows_to_ranges
from allranks.data.plan import rows_of_part
from allranks.errors import BatchMismatch, DataError

Columns = Mapping[str, NDArray[Any]]
_ON_THE_HOST = "OSUMmV"  # kinds of dtypes: objects, bytes, text, times, and what NumPy knows nothing of


def as_sharding(where: object, *, rank: int) -> Sharding | None:
    """Convert ``where`` into a JAX sharding: it is a sharding, a mesh of one axis, or a (mesh, axis names).

    Else return None.

    Raises DataError for a mesh of several axes without axis names.
    """
    if isinstance(where, Sharding):
        return where
    mesh, axes = where if isinstance(where, tuple) and len(where) == 2 else (where, None)
    if not isinstance(mesh, Mesh):
        return None
    if axes is None and len(mesh.axis_names) > 1:
        raise DataError(
            f"rank {rank}: the mesh has the axes {', '.join(map(str, mesh.axis_names))}.",
            remedy="Name those that cut the batch: (mesh, 'data').",
        )
    return NamedSharding(mesh, PartitionSpec(mesh.axis_names[0] if axes is None else axes))  # type: ignore[no-untyped-call]


def rows_of_process(where: object, *, global_batch: int, rank: int) -> tuple[int, ...] | None:
    """Return the rows of all devices of this process, ascending; None if ``where`` is not a sharding of JAX."""
    sharding = as_sharding(where, rank=rank)
    if sharding is None:
        return None
    parts, mine = shards(_of_rank(sharding, 1))
    if not mine:
        raise DataError(f"rank {rank}: no device of this process is in {sharding}, so it holds no rows.")
    return tuple(row for part in mine for row in rows_of_part(part, parts, global_batch, rank=rank))


def _of_rank(sharding: Sharding, ndim: int) -> Sharding:
    """Return the sharding for arrays of ``ndim`` dimensions.

    So the sharding of tokens (rows, positions) also divides labels (rows).
    """
    if isinstance(sharding, NamedSharding) and len(sharding.spec) > ndim:
        return NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[:ndim]), memory_kind=sharding.memory_kind)  # type: ignore[no-untyped-call]
    return sharding


def to_jax(columns: Columns, rows: Sequence[int], where: object, global_batch: int) -> dict[str, Any]:
    """Return a batch as global arrays of ``global_batch`` rows. No row is sent between ranks, and no rank waits.

    ``columns`` hold this process's ``rows``, ascending, in their first dimension. They must not be changed afterwards,
    because a device may still read them. ``where`` is as for ``rows_of_process``. Columns of text, bytes and objects
    are returned unchanged. Raises BatchMismatch if the rows are not exactly the rows that this process's devices need.
    Raises DataError for integers that do not fit into 32 bits, if JAX has only these.
    """
    rank = jax.process_index()
    sharding = as_sharding(where, rank=rank)
    if sharding is None:
        raise DataError(f"rank {rank}: to_jax needs a sharding, or a (mesh, axis names), not {where!r}.")
    held = tuple(rows)
    made: dict[str, Any] = {}
    for name, column in columns.items():
        _refuse_count(name, column, len(held), rank)
        if column.dtype.kind in _ON_THE_HOST and not jnp.issubdtype(column.dtype, np.number):
            made[name] = column
        else:
            _refuse_wide(name, column, rank)
            made[name] = _place_column(column, held, _of_rank(sharding, column.ndim), global_batch, rank)
    return made


def _has_wide_numbers() -> bool:
    return bool(jax.dtypes.canonicalize_dtype(np.int64) == np.int64)


def with_settings(place: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    """Return ``place``, for any thread: with the width of numbers that the calling thread has set."""
    wide = _has_wide_numbers()

    def placed(batch: Any) -> dict[str, Any]:
        if _has_wide_numbers() == wide:
            return place(batch)
        with jax.enable_x64(wide):
            return place(batch)

    return placed


def _place_column(
    column: NDArray[Any], rows: tuple[int, ...], sharding: Sharding, global_batch: int, rank: int
) -> jax.Array:
    here = _local_rows(sharding, rows, global_batch, rank)

    def part(index: tuple[slice, ...] | None) -> NDArray[Any]:
        assert index is not None
        return column[here[index[0].start or 0], *index[1:]]

    return jax.make_array_from_callback((global_batch, *column.shape[1:]), sharding, part)


def _refuse_count(name: str, column: NDArray[Any], count: int, rank: int) -> None:
    if not column.ndim or len(column) != count:
        raise BatchMismatch(
            f"rank {rank}: to_jax: column '{name}' is {column.shape}, and {count} rows of the batch are held here.",
            leaf=name,
            remedy="The first dimension of every column counts the rows that this process holds.",
        )


def _refuse_wide(name: str, column: NDArray[Any], rank: int) -> None:
    kept = jax.dtypes.canonicalize_dtype(column.dtype)
    if kept == column.dtype or column.dtype.kind not in "iu" or not column.size:
        return
    low, high = int(column.min()), int(column.max())
    if low < np.iinfo(kept).min or high > np.iinfo(kept).max:
        raise DataError(
            f"rank {rank}: to_jax: column '{name}' is {column.dtype} with values from {low} to {high}, and JAX would "
            f"make it {kept} in silence.",
            leaf=name,
            remedy="Leave it out of the arrays, or set jax_enable_x64.",
        )


@lru_cache(maxsize=256)
def _local_rows(sharding: Sharding, rows: tuple[int, ...], global_batch: int, rank: int) -> dict[int, slice]:
    """Return, by the first global row that a device needs, the slice of the local rows that the device gets.

    Raises BatchMismatch if the local rows are not those that the devices need.
    """
    parts, mine = shards(_of_rank(sharding, 1))
    cuts = [rows_of_part(part, parts, global_batch, rank=rank) for part in mine]
    needed = tuple(row for cut in cuts for row in cut)
    if needed == rows:
        return {cut.start: slice(number * len(cut), (number + 1) * len(cut)) for number, cut in enumerate(cuts)}
    missing, idle = (rows_to_ranges(sorted(set(one) - set(other))) for one, other in ((needed, rows), (rows, needed)))
    differences = [f"no row here for {describe_rows(missing)}"] if missing else []
    differences += [f"{describe_rows(idle)} here, which no device of this process needs"] if idle else []
    raise BatchMismatch(
        f"rank {rank}: to_jax: this process' devices need {describe_rows(rows_to_ranges(needed))} "
        f"of a batch of {global_batch}; there is {' and '.join(differences) or 'another order of rows'}.",
        remedy="Give the loader the sharding that the batch will have, so that it reads these rows.",
    )
