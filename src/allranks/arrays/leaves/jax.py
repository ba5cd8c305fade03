"""Provide the adapter for JAX arrays, PRNG keys, descriptions of arrays, and nodes that are registered as pytrees.

On CPU no byte is copied. A view of an array's buffer keeps the buffer alive, and a donation or deletion of the array
does not touch it. A new array uses a buffer that begins at a multiple of 64 bytes, and that is never written again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

from allranks.arrays.base import CellBytes, CellCopy, FillTarget, RankSplit
from allranks.arrays.grid import cell_number_of, replicated_split, split_of
from allranks.arrays.leaves.base import ArraySpec, LeafFill, LeafRefused, OpenContext
from allranks.arrays.leaves.numpy import DTYPES, aligned_empty, dtype_name, flat_bytes
from allranks.arrays.walk import OpenedNode, Opener
from allranks.extent import Extent

_Described: Any = jax.ShapeDtypeStruct  # its constructor is not typed
# The dtypes that JAX narrows by default.
_WIDE = {DTYPES[name] for name in ("int64", "uint64", "float64", "complex128")}
_IMPLS = ("threefry2x32", "rbg", "unsafe_rbg")
# Below this, a copy costs less than the alignment that would save it.
_SMALL = 4096


def claims(kind: type) -> bool:
    return issubclass(kind, jax.Array | jax.ShapeDtypeStruct | jax.core.Tracer)


def opener(node: object, _context: OpenContext) -> Opener | None:
    structure = jax.tree.structure(node, is_leaf=lambda other: other is not node)
    return None if jax.tree_util.treedef_is_leaf(structure) else open_node


def open_node(node: object) -> OpenedNode:
    """Open a node of a registered pytree by one level: return its children and how to rebuild it."""
    children, structure = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda other: other is not node)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in children]
    return OpenedNode(names, [child for _, child in children], lambda made: jax.tree.unflatten(structure, made))


@dataclass(frozen=True, slots=True, eq=False)
class _LocalCut:
    """The parts that this process holds of an array, for one sharding and shape.

    ``split``: how the array is divided over the ranks. ``parts``: the boxes of elements of this process, each once.
    ``places``: the cell and the name of each device. ``numbers``: for each cell, the number of one of its shards.
    ``on_host``: whether the devices are CPUs, so that the arrays are in host memory.
    """

    split: RankSplit
    parts: tuple[Extent, ...]
    places: dict[Any, tuple[int, str]]
    numbers: dict[int, int]
    on_host: bool


def spec(leaf: Any, context: OpenContext) -> ArraySpec:
    if isinstance(leaf, jax.core.Tracer):
        raise LeafRefused("a tracer", "Save and restore outside of jit.")
    if isinstance(leaf, jax.ShapeDtypeStruct):
        if not context.for_restore:
            raise LeafRefused("a ShapeDtypeStruct, which holds no bytes", "Use a ShapeDtypeStruct only in a template.")
        if leaf.sharding is None:
            raise LeafRefused(
                "a ShapeDtypeStruct without sharding", "Pass a sharding: ShapeDtypeStruct(..., sharding=)."
            )
    elif not context.for_restore and leaf.is_deleted():
        raise LeafRefused("deleted: it was donated to a jitted function", "Save the array that the function returned.")
    bits = _stored_bits(leaf)
    return _spec(bits.sharding, bits.shape, bits.dtype, str(leaf.dtype) if bits is not leaf else "", context.size)


@lru_cache(maxsize=1 << 14)
def _spec(sharding: Sharding, shape: tuple[int, ...], dtype: np.dtype[Any], kind: str, size: int) -> ArraySpec:
    return ArraySpec(shape, dtype_name(dtype), _cut_locally(sharding, shape, size).split, kind)


def _stored_bits(leaf: Any) -> Any:
    """Return the array whose bytes are stored for a leaf: the bits of PRNG keys, or the leaf itself."""
    if isinstance(leaf.dtype, np.dtype) or not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    if isinstance(leaf, jax.Array):
        return jax.random.key_data(leaf)
    bits = jax.eval_shape(jax.random.key_data, _Described(leaf.shape, leaf.dtype))
    return _Described(bits.shape, bits.dtype, sharding=leaf.sharding)


@lru_cache(maxsize=1 << 14)
def _cut_locally(sharding: Sharding, shape: tuple[int, ...], size: int) -> _LocalCut:
    local: Any = sharding.addressable_devices_indices_map(shape)
    mine = [_extent_of_index(index, shape) for index in local.values()]
    if sharding.is_fully_addressable and sharding.is_fully_replicated:
        split: RankSplit | None = replicated_split(len(shape), size)
    elif sharding.is_fully_addressable:  # every rank has its own array
        split = split_of(shape, ((range(size), extent) for extent in mine))
    else:
        placed: Any = sharding.devices_indices_map(shape).items()
        split = split_of(shape, (((device.process_index,), _extent_of_index(index, shape)) for device, index in placed))
    if split is None:
        raise LeafRefused(f"cut as {sharding}, which makes no grid of equal cells", "Place it with a NamedSharding.")
    cells = [cell_number_of(extent, shape, split.cuts) for extent in mine]
    places = {device: (cell, f"{device.platform}:{device.id}") for device, cell in zip(local, cells, strict=True)}
    numbers = {cell: number for number, cell in enumerate(cells)}
    on_host = all(device.platform == "cpu" for device in local)
    return _LocalCut(split, tuple(dict.fromkeys(mine)), places, numbers, on_host)


def _extent_of_index(index: Any, shape: tuple[int, ...]) -> Extent:
    bounds = [cut.indices(whole) for cut, whole in zip(index, shape, strict=True)]
    return Extent(tuple(start for start, _, _ in bounds), tuple(stop - start for start, stop, _ in bounds))


def cell_bytes(leaf: Any, cell: int, context: OpenContext) -> CellBytes:
    array = _stored_bits(leaf)
    cut = _cut_locally(array.sharding, array.shape, context.size)
    whole = len(cut.split.holders) == 1 and cut.on_host
    part = array if whole else array.addressable_data(cut.numbers[cell])
    return CellBytes(_part_bytes(part, cut.on_host), mutable=False)


def copies(leaf: Any, context: OpenContext) -> tuple[CellCopy, ...]:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return ()
    array = _stored_bits(leaf)
    cut = _cut_locally(array.sharding, array.shape, context.size)
    if len(cut.places) == 1:
        parts = list(zip(cut.places.values(), [array.addressable_data(0)], strict=True))
    else:  # (for a replicated array, addressable_data() returns the first copy only)
        parts = [(cut.places[shard.device], shard.data) for shard in array.addressable_shards]
    return tuple(
        CellCopy(cell, name, "jax", part, cut.on_host, partial(_part_bytes, part, cut.on_host))
        for (cell, name), part in parts
    )


def _part_bytes(part: Any, on_host: bool) -> np.ndarray[Any, np.dtype[np.uint8]]:
    if not on_host or part.dtype.itemsize == 1:
        # If JAX copies (from a device, or packed dtypes), it caches the copy in the array: a new array is not kept.
        part = part.addressable_data(0)
        part = jax.make_array_from_single_device_arrays(part.shape, part.sharding, [part])
    return flat_bytes(np.asarray(part))


def address(leaf: Any) -> int:
    return id(leaf) if isinstance(leaf, jax.Array) else 0


def memory(_leaf: Any) -> None:
    return None  # each leaf of a template gets its own array, so equal arrays are not tied


def leaf_fill(leaf: Any, context: OpenContext) -> LeafFill:
    bits = _stored_bits(leaf)
    cut = _cut_locally(bits.sharding, bits.shape, context.size)
    dtype = DTYPES[dtype_name(bits.dtype)]
    buffers = {extent.offset: _empty_buffer(extent.shape, dtype) for extent in cut.parts}

    def done() -> object:
        made = _array_from_parts(bits, lambda index: buffers[_extent_of_index(index, bits.shape).offset])
        return made if bits is leaf else jax.random.wrap_key_data(made, impl=_key_implementation(leaf.dtype))

    return LeafFill(tuple(FillTarget(extent, buffers[extent.offset]) for extent in cut.parts), done)


def _array_from_parts(leaf: Any, part: Callable[[Any], np.ndarray[Any, Any]]) -> jax.Array:
    """Return an array of these parts that equals ``leaf`` in everything but its values."""
    weak, wide = leaf.weak_type, leaf.dtype in _WIDE
    # An uncommitted array works with arrays of any mesh; JAX refuses a committed one of another mesh.
    loose = not getattr(leaf, "committed", True)
    with jax.enable_x64(wide) if wide or weak else nullcontext():
        made: Any = jax.device_put(part((slice(None),) * len(leaf.shape))) if loose else None
        if made is None or made.sharding != leaf.sharding:
            made = _from_cells(leaf, part)
        return cast(jax.Array, _with_weak_type(made) if weak else made)


def _from_cells(leaf: Any, part: Callable[[Any], np.ndarray[Any, Any]]) -> Any:
    if leaf.sharding.addressable_devices:
        return jax.make_array_from_callback(leaf.shape, leaf.sharding, part, dtype=leaf.dtype)
    return jax.make_array_from_single_device_arrays(leaf.shape, leaf.sharding, [], dtype=leaf.dtype)


def _with_weak_type(array: Any) -> Any:
    """Return the array with a weak type. No public function of JAX sets it, but an update keeps its operand's type."""

    def update(new: Any) -> Any:
        zero = jnp.asarray(new.dtype.type(0).item())
        return jnp.broadcast_to(zero, new.shape).at[...].set(new)

    return jax.jit(update, out_shardings=array.sharding if array.committed else None)(array)


@lru_cache
def _key_implementation(dtype: Any) -> Any:
    return jax.random.key_impl(jnp.empty((0,), dtype))


def from_stored(buffer: np.ndarray[Any, Any], kind: str) -> jax.Array:
    """Return a stored array on the default device. If ``kind`` is a PRNG key type, return PRNG keys."""
    with jax.enable_x64(True) if buffer.dtype in _WIDE else nullcontext():
        made: jax.Array = jax.device_put(buffer)
    if not kind.startswith("key<"):
        return made
    impl = next(impl for impl in _IMPLS if str(_key_type(impl)) == kind)
    return cast(jax.Array, jax.random.wrap_key_data(made, impl=impl))


@lru_cache
def _key_type(impl: str) -> Any:
    return jax.eval_shape(lambda: jax.random.key(0, impl=impl)).dtype


def _empty_buffer(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    small = math.prod(shape) * dtype.itemsize < _SMALL
    return np.empty(shape, dtype) if small else aligned_empty(shape, dtype)
