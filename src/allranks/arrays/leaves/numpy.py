"""Provide the adapter for NumPy arrays and scalars: each rank has its own. Arrays are filled in place."""

from __future__ import annotations

import math
import random
from collections.abc import Hashable
from functools import lru_cache, partial
from typing import Any

import ml_dtypes
import numpy as np

from allranks.arrays.base import CellBytes, CellCopy, FillTarget
from allranks.arrays.grid import replicated_split
from allranks.arrays.leaves.base import ArraySpec, LeafFill, LeafRefused, OpenContext
from allranks.arrays.walk import OpenedNode, Opener, stateful_node
from allranks.extent import Extent

# The dtypes of a checkpoint: the same bytes on every machine. (No long double, text, dates or records.)
_FOREIGN = {name for name in dir(ml_dtypes) if isinstance(getattr(ml_dtypes, name), type)} - {"finfo", "iinfo"}
# (By name: C may have several types of one size, and a program uses NumPy's own.)
DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(getattr(ml_dtypes, name)) for name in _FOREIGN} | {
    name: np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
}
_NAMES: dict[np.dtype[Any], str] = {dtype: name for name, dtype in DTYPES.items()}
_ALIGNED = 64


def claims(kind: type) -> bool:
    return issubclass(kind, np.ndarray | np.generic)


def opener(node: object, _context: OpenContext) -> Opener | None:
    return next((opener for kind, opener in _GENERATORS.items() if isinstance(node, kind)), None)


def _open_generator(generator: np.random.Generator) -> OpenedNode:
    def load(state: Any) -> None:
        generator.bit_generator.state = state

    return stateful_node(generator, generator.bit_generator.state, load)


def _open_legacy(generator: np.random.RandomState) -> OpenedNode:
    return stateful_node(generator, generator.get_state(legacy=False), generator.set_state)


def _open_python(generator: random.Random) -> OpenedNode:
    version, words, gauss = generator.getstate()

    def load(state: Any) -> None:
        generator.setstate((state["version"], tuple(state["words"].tolist()), state["gauss"]))

    return stateful_node(generator, {"version": version, "words": np.array(words, np.uint32), "gauss": gauss}, load)


_GENERATORS: dict[type, Opener] = {
    np.random.Generator: _open_generator,
    np.random.RandomState: _open_legacy,
    random.Random: _open_python,
}


def spec(leaf: Any, context: OpenContext) -> ArraySpec:
    if isinstance(leaf, np.ma.MaskedArray):
        raise LeafRefused("a masked array", "Store the data and the mask of the array as two arrays.")
    return rank_local_spec(leaf.shape, dtype_name(leaf.dtype), context.size)


@lru_cache(maxsize=1 << 14)
def rank_local_spec(shape: tuple[int, ...], dtype: str, size: int, kind: str = "") -> ArraySpec:
    """Return the spec of an array that each of ``size`` ranks holds for itself."""
    return ArraySpec(shape, dtype, replicated_split(len(shape), size), kind)


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the checkpoint's name of a dtype, in any byte order. Raises LeafRefused if checkpoints cannot hold it."""
    name = _NAMES.get(dtype) or _NAMES.get(dtype.newbyteorder("="))
    if name is None:
        raise LeafRefused(f"an array of {dtype}", "Store an array of booleans, integers, floats or complex numbers.")
    return name


def cell_bytes(leaf: Any, _cell: int, _context: OpenContext) -> CellBytes:
    array = np.asarray(leaf)
    if array is leaf and array.flags.c_contiguous and array.dtype in _NAMES:
        return CellBytes(flat_bytes(array), mutable=True)
    return CellBytes(flat_bytes(np.array(array, DTYPES[dtype_name(array.dtype)], order="C")), mutable=False)


def copies(leaf: Any, context: OpenContext) -> tuple[CellCopy, ...]:
    return (CellCopy(0, "host", "numpy", leaf, True, partial(_bytes, leaf, context)),)


def _bytes(leaf: Any, context: OpenContext) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return cell_bytes(leaf, 0, context).data


def flat_bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes of an array, flat, in row-major order. It is a view if the array is contiguous."""
    return (array if array.ndim == 1 else array.reshape(-1)).view(np.uint8)


def address(leaf: Any) -> int:
    return leaf.__array_interface__["data"][0] if isinstance(leaf, np.ndarray) and leaf.size else 0


def memory(leaf: Any) -> Hashable | None:
    if not isinstance(leaf, np.ndarray) or not leaf.size:
        return None
    return leaf.__array_interface__["data"], leaf.dtype, leaf.shape, leaf.strides


def leaf_fill(leaf: Any, _context: OpenContext) -> LeafFill:
    dtype = DTYPES[dtype_name(leaf.dtype)]
    if isinstance(leaf, np.ndarray) and leaf.flags.writeable and leaf.dtype == dtype:
        return LeafFill((FillTarget(Extent.of_shape(leaf.shape), leaf, live=True),), lambda: leaf)
    buffer = np.empty(leaf.shape, dtype)

    def done() -> object:
        made = buffer.astype(leaf.dtype, copy=False)
        return made if isinstance(leaf, np.ndarray) else made[()]

    return LeafFill((FillTarget(Extent.of_shape(leaf.shape), buffer),), done)


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return a new, uninitialised array that begins at a multiple of 64 bytes."""
    size = math.prod(shape) * dtype.itemsize
    block = np.empty(size + _ALIGNED, np.uint8)
    start = -block.__array_interface__["data"][0] % _ALIGNED
    return block[start : start + size].view(dtype).reshape(shape)
