"""Convert values that ranks compare (configurations, keys, generators, small arrays) into JSON values and digests."""

from __future__ import annotations

import dataclasses
import enum
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

from allranks.arrays.walk import TreeWalk
from allranks.digest import digest, show
from allranks.errors import AllranksError
from allranks.readiness.detect import array_of


def to_json_value(value: object, *, value_name: str) -> Any:
    """Return a value as a JSON value; an array becomes a text with its dtype, shape and digest.

    ``value_name`` names the value in errors. Raises AllranksError for values that cannot be compared.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, PurePath | np.dtype | type) or (callable(value) and hasattr(value, "__qualname__")):
        return getattr(value, "__qualname__", str(value))
    if isinstance(value, Namespace):
        value = vars(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json_value(one, value_name=f"{value_name}.{key}") for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((to_json_value(one, value_name=value_name) for one in value), key=repr)
    array, _ = array_of(value)
    if array is not None:
        return f"{array.dtype}{list(array.shape)} {_array_digest(array)[:12]}"
    if isinstance(value, Sequence):
        return [to_json_value(one, value_name=f"{value_name}[{at}]") for at, one in enumerate(value)]
    raise AllranksError(
        f"{value_name}: expected a value that can be compared over ranks, found a {type(value).__qualname__}.",
        remedy="Give JSON values, dataclasses, arrays, keys or generators: vars(config), config.to_dict().",
    )


def element_digests(value: object, *, value_name: str) -> list[str]:
    """Return a digest of each element (key, seed, or row of an array) that must differ from all others."""
    if isinstance(value, list | tuple):
        return [part for at, one in enumerate(value) for part in element_digests(one, value_name=f"{value_name}[{at}]")]
    array, keys = array_of(value)
    if array is None:
        return [show(digest(repr(to_json_value(value, value_name=value_name))))]
    if keys:
        array = array.reshape(-1, array.shape[-1])
    return [_array_digest(row) for row in array] if array.ndim else [_array_digest(array)]


def array_shapes(tree: object) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a tree's arrays, by path."""
    return {path: tuple(leaf.shape) for path, leaf in _arrays_by_path(tree)}


def spans_ranks(tree: object) -> bool:
    """Return whether a tree contains a global jax.Array, of which this process holds only a part."""
    return any(not getattr(leaf, "is_fully_addressable", True) for _, leaf in _arrays_by_path(tree))


def _arrays_by_path(tree: object) -> list[tuple[str, Any]]:
    walk = TreeWalk(tree, is_leaf=lambda kind: hasattr(kind, "shape"), opener=lambda _: None)
    found = zip(walk.paths, walk.leaves, strict=True)
    return [(path, leaf) for path, leaf in found if hasattr(leaf, "shape")]


def _array_digest(array: np.ndarray[Any, Any]) -> str:
    whole = np.ascontiguousarray(array)
    return show(digest(str(whole.dtype), repr(whole.shape), whole.tobytes()))
