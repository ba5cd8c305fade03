"""Describe trees of JAX arrays, and assemble the rows of all ranks to a global batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from allranks.arrays import batch
from allranks.arrays.base import GatheringWorld, Leaf
from allranks.digest import digest, merge_digests, show
from allranks.errors import BatchMismatch

T = TypeVar("T")

# What the ranks of a world have compared, and the rows that it made. One comparison for each shape of a row is enough,
# and slows down no step.
_compared: WeakKeyDictionary[GatheringWorld, dict[object, set[int]]] = WeakKeyDictionary()


def owns(tree: object) -> bool:
    """Return whether the tree holds a JAX array."""
    return any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(tree))


def describe(tree: object) -> tuple[Leaf, ...]:
    """Return the arrays of the tree and how each is divided over devices. No data moves; any rank may call it alone."""
    return tuple(_describe_array(path, array) for path, array in _arrays_by_path(tree).items())


def _arrays_by_path(tree: object) -> dict[str, Any]:
    """Return the arrays of a tree by path. PRNG keys are returned as their bits."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        if isinstance(leaf, jax.Array | np.ndarray | np.generic):
            found[jax.tree_util.keystr(path, simple=True, separator="/")] = leaf
    return found


def _describe_array(path: str, array: Any) -> Leaf:
    part = array.sharding.shard_shape(array.shape) if isinstance(array, jax.Array) else array.shape
    pieces = tuple(whole // cut if cut else 1 for whole, cut in zip(array.shape, part, strict=True))
    return Leaf(path, tuple(array.shape), str(array.dtype), pieces, math.prod(part) * array.dtype.itemsize)


def _raw_bytes(array: Any) -> memoryview:
    return np.ascontiguousarray(np.asarray(array)).reshape(-1).view(np.uint8).data


def global_batch(
    mesh: Mesh,
    rows: T,
    *,
    axis: str | tuple[str, ...] | None = None,
    global_rows: int | None = None,
    world: Callable[[], GatheringWorld],
) -> T:
    """Implement ``allranks.global_batch`` (see data/rows.py). ``world()`` is called only if there are other ranks."""
    who = f"rank {jax.process_index()}: global_batch"
    cut = PartitionSpec(_batch_axis(mesh, axis, who=who))  # type: ignore[no-untyped-call]
    sharding = NamedSharding(mesh, cut)
    arrays = _arrays_by_path(rows)
    count = batch.count_rows({path: array.shape for path, array in arrays.items()}, operation=who)
    parts, mine = shards(sharding)
    total = batch.count_global_rows(
        count, rank_parts=len(mine), all_parts=parts, global_rows=global_rows, operation=who
    )
    if jax.process_count() > 1:
        _compare_rows(world(), arrays, mine, total, announced=global_rows is not None, who=who)

    def place(leaf: Any) -> jax.Array:
        return jax.make_array_from_process_local_data(sharding, leaf, (total, *leaf.shape[1:]))  # type: ignore[no-untyped-call, no-any-return]

    return cast(T, jax.tree.map(place, rows))


def _batch_axis(mesh: Mesh, axis: str | tuple[str, ...] | None, *, who: str) -> str | tuple[str, ...]:
    if axis is not None:
        return axis
    if len(mesh.axis_names) == 1:
        return str(mesh.axis_names[0])
    raise BatchMismatch(
        f"{who}: the mesh has several axes: {', '.join(map(str, mesh.axis_names))}.",
        remedy="Pass the axes that cut the batch as axis=.",
    )


def shards(sharding: Sharding) -> tuple[int, tuple[int, ...]]:
    """Return the number of parts into which rows are cut, and the numbers of the parts on devices of this process."""
    devices = len(sharding.device_set)
    starts = {device: cut[0].start or 0 for device, cut in sharding.devices_indices_map((devices,)).items()}
    order = {start: number for number, start in enumerate(sorted(set(starts.values())))}
    return len(order), tuple(sorted({order[starts[device]] for device in sharding.addressable_devices}))


def _compare_rows(
    world: GatheringWorld, arrays: dict[str, Any], mine: tuple[int, ...], total: int, *, announced: bool, who: str
) -> None:
    row = tuple(f"{path or 'rows'} {array.dtype}{list(array.shape[1:])}" for path, array in arrays.items())
    totals = _compared.setdefault(world, {}).setdefault((row, mine), set())
    if total in totals:
        return
    if totals and not announced:  # if only this rank sees a new number, it would wait for the others forever
        batch.raise_changed_size(total, sorted(totals), operation=who)
    alike = all((array == array[:1]).all() for array in arrays.values())
    bytes_ = "" if alike else show(merge_digests(digest(path, _raw_bytes(array)) for path, array in arrays.items()))
    leaves = [f"{path or 'rows'} {array.dtype}{list(array.shape)}" for path, array in arrays.items()]
    said = world.all_gather([leaves, mine, bytes_], name="global_batch")
    batch.check_row_claims([batch.RowClaim(tuple(leaves), tuple(shards), text) for leaves, shards, text in said])
    totals.add(total)
