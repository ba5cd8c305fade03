"""Record which arrays a rank saves, and which of them are only this rank's part of a larger array.

The program takes its part of a global array by ``addressable_data`` or ``addressable_shards`` of JAX, or by
``to_local`` of a DTensor. The part is known again by its fingerprint, also if the program has
copied it, or put parts together.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from allranks.agent import load
from allranks.rehearse.probe.record import Recorder

imports = load("allranks_agent_imports")

# By module: its functions that save, and the position of what is saved among their arguments.
_SAVES = {
    "numpy": (("save", 1), ("savez", 1), ("savez_compressed", 1)),
    "pickle": (("dump", 0), ("dumps", 0)),
    "cloudpickle": (("dump", 0), ("dumps", 0)),
    "joblib": (("dump", 0),),
    "torch": (("save", 0),),
    "safetensors.torch": (("save_file", 0), ("save", 0)),
    "safetensors.numpy": (("save_file", 0), ("save", 0)),
    "safetensors.flax": (("save_file", 0), ("save", 0)),
    "flax.serialization": (("to_bytes", 0), ("msgpack_serialize", 0)),
}
_LARGEST, _MOST, _DEPTH = 1 << 28, 4096, 8
# Of how many elements and arrays of a save the fingerprints are recorded.
_CONTENT, _NAMED = 1 << 24, 512


class Fingerprint(NamedTuple):
    """Of an array's elements, in any order: their type, how many they are, and two sums over their bits."""

    kind: str
    size: int
    total: int
    parity: int

    def __add__(self, other: Any) -> Fingerprint:
        return Fingerprint(
            self.kind, self.size + other.size, (self.total + other.total) % (1 << 64), self.parity ^ other.parity
        )


class Part(NamedTuple):
    """A rank's part of a larger array: the shape and the size of the array."""

    shape: tuple[int, ...]
    size: int


class SaveRecorder:
    """The parts that the program has taken in this process, and the calls by which it saves."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._parts: dict[Fingerprint, Part] = {}
        self._places: set[int] = set()
        self._is_inside = False
        self.local_buffers: Callable[[], Mapping[str, Any]] = dict

    def attach(self) -> None:
        for name, functions in _SAVES.items():
            imports.after_import(name, functools.partial(self._watch, functions))

    def _watch(self, functions: Any, module: Any) -> None:
        for name, what in functions:
            if (original := getattr(module, name, None)) is not None:
                setattr(module, name, self._saving(original, f"{module.__name__}.{name}", what))

    def _saving(self, original: Callable[..., Any], name: str, what: int) -> Callable[..., Any]:
        @functools.wraps(original)
        def save(*args: Any, **options: Any) -> Any:
            if not self._is_inside and (place := self._recorder.place()):
                self._is_inside = True
                try:
                    self._record(name, [*args[what:][: None if "savez" in name else 1], options], place)
                finally:
                    self._is_inside = False
            return original(*args, **options)

        return save

    def watch_tensors(self, module: Any) -> None:
        """Watch how the program takes the local tensors of DTensors. ``module`` defines the class."""
        tensor = module.DTensor
        to_local = tensor.to_local

        @functools.wraps(to_local)
        def taking(one: Any, *args: Any, **options: Any) -> Any:
            local = to_local(one, *args, **options)
            if self._recorder.is_users(sys._getframe(1).f_code.co_filename):
                self.take({"": local}, tuple(one.shape))
            return local

        tensor.to_local = taking

    def take(self, arrays: Mapping[str, Any], shape: tuple[int, ...]) -> None:
        """Note that the program takes these distinct parts of an array, each by its index, or all of them."""
        size = math.prod(shape)
        place = self._recorder.place()
        if place not in self._places and sum(math.prod(one.shape) for one in arrays.values()) < size:
            self._places.add(place)
            self._recorder.write("part", place=place, shape=list(shape))
        total: Fingerprint | None = None
        for array in arrays.values():
            found = fingerprint(array)
            if found is None:
                return
            total = found if total is None else total + found
            for known in (found, total):
                if 1 < known.size < size and len(self._parts) < _MOST:
                    self._parts[known] = Part(shape, size)

    def _record(self, name: str, values: Any, place: int) -> None:
        buffers = {found: key for key, one in self.local_buffers().items() if (found := fingerprint(one))}
        parts, stale, count, left = [], [], 0, _CONTENT
        content: dict[str, str] = {}
        for key, leaf in leaves(values):
            count += 1
            shape, local = tuple(leaf.shape), getattr(leaf, "_local_tensor", None)
            left -= math.prod(shape)
            is_kept = left > 0 and len(content) < _NAMED
            wanted = is_kept or (local is None and (self._parts or buffers))
            found = fingerprint(leaf if local is None else local) if wanted else None
            if is_kept and found is not None:
                content[key] = f"{found.total:x}{found.parity:x}"
            if local is not None:
                if local.numel() < math.prod(shape):
                    parts.append([key, list(local.shape), list(shape), local.numel(), math.prod(shape)])
            elif found is not None:
                if part := self._parts.get(found):
                    parts.append([key, list(shape), list(part.shape), found.size, part.size])
                elif found in buffers:
                    stale.append(buffers[found])
        self._recorder.write(
            "saved",
            place=place,
            function=name,
            arrays=count,
            parts=parts[:16],
            buffers=stale[:16],
            content=content,
        )


def leaves(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the arrays in a nested value, each with its name."""
    if _has(value, "shape", "dtype"):
        yield name, value
    elif depth > _DEPTH:
        return
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from leaves(one, f"{name}.{key}" if name else str(key), depth + 1)
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from leaves(one, f"{name}.{number}" if name and len(value) > 1 else name, depth + 1)
    elif _has(value, "named_parameters", "state_dict"):
        yield from leaves(value.state_dict(), name, depth + 1)
    elif (jax := sys.modules.get("jax")) is not None and hasattr(jax, "tree_util") and not _is_plain(value):
        flat, _ = jax.tree_util.tree_flatten_with_path(value)
        for path, one in flat:
            if one is not value and _has(one, "shape"):
                yield name + jax.tree_util.keystr(path), one


def _has(value: Any, *names: str) -> bool:
    """Return whether the type of a value has these attributes. The value itself may raise for unknown ones."""
    return all(hasattr(type(value), name) for name in names)


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | bytes | int | float | os.PathLike | type(None))


def fingerprint(array: Any) -> Fingerprint | None:
    """Return the fingerprint of an array, or None if its elements are not on this process, or too many."""
    try:
        if hasattr(array, "detach"):
            array = array.detach().cpu()
            array = array.numpy() if str(array.dtype) != "torch.bfloat16" else array.float().numpy()
        elif not getattr(array, "is_fully_addressable", True):
            if not array.is_fully_replicated:
                return None
            array = array.addressable_data(0)
        host = np.ascontiguousarray(np.asarray(array))
        if not host.size or host.nbytes > _LARGEST or host.dtype.itemsize not in (1, 2, 4, 8):
            return None
        bits = host.reshape(-1).view(f"u{host.dtype.itemsize}")
    except (TypeError, ValueError, RuntimeError):
        return None
    total = int(bits.sum(dtype=np.uint64))
    return Fingerprint(str(host.dtype), int(host.size), total, int(np.bitwise_xor.reduce(bits)))
