"""Convert a framework's checkpoint, any tree of Python values, to arrays and JSON and back. Nothing is pickled.

JSON values are kept as they are. A value of a type that JSON lacks becomes an object with one key, which begins with
``$``. The name of an array is its path: ``optimizer_states/0/state/1/exp_avg``.
"""

from __future__ import annotations

import base64
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from allranks.errors import CannotStore

Array: TypeAlias = "torch.Tensor | np.ndarray[Any, Any]"

# What JSON has not, by its type: its sign, what it is in JSON types (which may hold more of such values), and back.
_KINDS: dict[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    tuple: ("$tuple", list, tuple),
    torch.Size: ("$size", list, torch.Size),
    Counter: ("$counter", lambda value: [list(item) for item in value.items()], lambda items: Counter(dict(items))),
    type(Path()): ("$path", str, Path),
    torch.device: ("$device", str, torch.device),
    torch.dtype: ("$dtype", lambda value: str(value).removeprefix("torch."), lambda name: getattr(torch, name)),
    bytes: ("$bytes", lambda value: base64.b64encode(value).decode(), base64.b64decode),
}
_MAKERS = {sign: make for sign, _, make in _KINDS.values()}
_TENSOR, _ARRAY, _SCALAR, _DICT, _ORDERED = "$tensor", "$array", "$scalar", "$dict", "$ordered"


def split_arrays(document: Mapping[str, Any]) -> tuple[dict[str, Array], Any]:
    """Split a tree of Python values into its arrays, by path, and everything else as JSON.

    Raises CannotStore, with the path, for a value that cannot be stored without pickle.
    """
    arrays: dict[str, Array] = {}
    return arrays, _ArrayCollector(arrays).to_json(document, "")


def join_arrays(json_part: Any, arrays: Mapping[str, Array]) -> Any:
    """Return the tree that ``split_arrays`` has split into these arrays and this JSON."""
    if type(json_part) is list:
        return [join_arrays(one, arrays) for one in json_part]
    if type(json_part) is not dict:
        return json_part
    sign = _sign_of(json_part)
    if not sign:
        return {key: join_arrays(one, arrays) for key, one in json_part.items()}
    if sign in (_TENSOR, _ARRAY):
        return arrays[json_part[sign]]
    if sign == _SCALAR:
        return np.asarray(arrays[json_part[sign]])[()]
    inner = join_arrays(json_part[sign], arrays)
    if sign == _DICT:
        return dict(inner)
    if sign == _ORDERED:
        return _ordered_state(*inner)
    return _MAKERS[sign](inner)


def array_names(json_part: Any) -> Iterator[tuple[str, bool]]:
    """Yield the name of each array that ``join_arrays`` needs, and whether the array is a tensor."""
    if type(json_part) is list:
        for one in json_part:
            yield from array_names(one)
    elif type(json_part) is dict:
        sign = _sign_of(json_part)
        if sign in (_TENSOR, _ARRAY, _SCALAR):
            yield json_part[sign], sign == _TENSOR
        else:
            yield from array_names(list(json_part.values()))


def _sign_of(words: dict[str, Any]) -> str:
    first = next(iter(words), "")
    return first if first.startswith("$") else ""


def _ordered_state(items: list[Any], metadata: Any) -> OrderedDict[Any, Any]:
    """Return a module's ``state_dict``, with the versions of the modules that torch attaches to it as ``_metadata``."""
    found = OrderedDict(items)
    if metadata is not None:
        found._metadata = metadata  # type: ignore[attr-defined]
    return found


class _ArrayCollector:
    """Converts values to JSON, and collects their arrays in a dict."""

    def __init__(self, arrays: dict[str, Array]) -> None:
        self._arrays = arrays

    def to_json(self, value: Any, path: str) -> Any:
        """Return a value as JSON. An array is replaced by its name."""
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if isinstance(value, torch.Tensor):
            return {_TENSOR: self._add_array(_checked_tensor(value, path), path)}
        if isinstance(value, np.ndarray):
            return {_ARRAY: self._add_array(value, path)}
        if isinstance(value, np.generic):
            return {_SCALAR: self._add_array(np.asarray(value), path)}
        if kind is list:
            return [self.to_json(one, f"{path}/{number}") for number, one in enumerate(value)]
        if kind in (dict, OrderedDict):
            return self._of_dict(value, path)
        if kind not in _KINDS:
            raise CannotStore(
                f"{path or 'the checkpoint'} is a {kind.__module__}.{kind.__qualname__}, which can be stored only as "
                "a pickle, and nothing is pickled here: a checkpoint holds tensors, NumPy arrays, JSON values, tuples, "
                "paths, bytes, torch's dtypes and devices, and dicts and lists of them.",
                leaf=path,
                remedy="Leave it out (self.save_hyperparameters(ignore=[...])), or store what it is made from.",
            )
        sign, unmake, _ = _KINDS[kind]
        return {sign: self.to_json(unmake(value), path)}

    def _of_dict(self, value: dict[Any, Any], path: str) -> Any:
        top = f"{path}/" if path else ""
        items = [(key, self.to_json(one, f"{top}{key}")) for key, one in value.items()]
        metadata = getattr(value, "_metadata", None)
        if type(value) is dict and all(type(key) is str and not key.startswith("$") for key in value):
            return dict(items)
        pairs = [[self.to_json(key, f"a key of {path}"), one] for key, one in items]
        if type(value) is dict:
            return {_DICT: pairs}
        return {_ORDERED: [pairs, self.to_json(metadata, f"{path}._metadata")]}

    def _add_array(self, array: Array, path: str) -> str:
        """Add an array to the collected ones; return the name it gets: its path, made unique."""
        while path in self._arrays:
            path += "'"
        self._arrays[path] = array
        return path


def _checked_tensor(tensor: torch.Tensor, path: str) -> torch.Tensor:
    """Return the detached tensor. Raises CannotStore for a DTensor, of which each rank holds only a part."""
    if hasattr(tensor, "to_local"):
        raise CannotStore(
            f"{path} is a DTensor: each rank holds a part of it, and only one rank saves here.",
            leaf=path,
            remedy="Save with allranks.Checkpointer, in which all ranks take part, or gather the state first.",
        )
    return tensor.detach()
