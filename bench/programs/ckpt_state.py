"""The states that the checkpoint benches save: their leaves, what is in them, and how each framework holds them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
BF16 = np.dtype(ml_dtypes.bfloat16)
_NOISE = 1 << 22


@dataclass(frozen=True, slots=True)
class Leaf:
    group: str
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape)) * self.dtype.itemsize


def leaves(kind: str) -> list[Leaf]:
    """``gpt2`` (1.24 GB in 150 leaves), ``gpt2-tenth``, ``small`` (5,000 leaves, 58 MB), ``small-tenth``."""
    of, tenth = kind.removesuffix("-tenth"), kind.endswith("-tenth")
    return _small(500 if tenth else 5000) if of == "small" else _gpt2(*((6288, 288) if tenth else (50304, 768)))


def _gpt2(vocabulary: int, width: int) -> list[Leaf]:
    """GPT-2 small with rows that three and four ranks can share: bfloat16 parameters, float32 moments of Adam."""
    shapes = {"wte": (vocabulary, width), "wpe": (1056, width)}
    for layer in range(12):
        shapes |= {
            f"h{layer}.qkv": (width, 3 * width),
            f"h{layer}.out": (width, width),
            f"h{layer}.up": (width, 4 * width),
            f"h{layer}.down": (4 * width, width),
        }
    dtypes = {"params": BF16, "mu": np.dtype(np.float32), "nu": np.dtype(np.float32)}
    return [Leaf(group, name, shape, dtype) for group, dtype in dtypes.items() for name, shape in shapes.items()]


def _small(count: int) -> list[Leaf]:
    """Float32 leaves of 256 B to 64 KB, evenly spread over the powers of two."""
    dice = random.Random(0)
    return [Leaf("all", f"leaf{n:04}", (int(2 ** dice.uniform(6, 14)),), np.dtype(np.float32)) for n in range(count)]


class State:
    """The rows of ``rank`` of ``size``, of all leaves. Every value follows from its place: it can be checked."""

    def __init__(self, kind: str, rank: int = 0, size: int = 1) -> None:
        noise = np.random.default_rng(0).standard_normal(_NOISE, np.float32)
        self._noise = {dtype: noise.astype(dtype) for dtype in (np.dtype(np.float32), BF16)}
        self.leaves, self.rank, self.size = leaves(kind), rank, size
        self.nbytes = sum(leaf.nbytes for leaf in self.leaves) // size
        self.arrays = [np.empty(self.local(leaf), leaf.dtype) for leaf in self.leaves]
        for array, number in zip(self.arrays, range(len(self.leaves)), strict=True):
            for piece, wanted in self._pieces(array, number):
                piece[:] = wanted

    def local(self, leaf: Leaf) -> tuple[int, ...]:
        return (leaf.shape[0] // self.size, *leaf.shape[1:])

    def tree(self, values: list[Any]) -> dict[str, dict[str, Any]]:
        """Values of the leaves, in two levels of dicts."""
        tree: dict[str, dict[str, Any]] = {}
        for leaf, value in zip(self.leaves, values, strict=True):
            tree.setdefault(leaf.group, {})[leaf.name] = value
        return tree

    def check(self, arrays: Mapping[str, Mapping[str, Array]]) -> None:
        """Raise unless these are the values that were saved."""
        for number, leaf in enumerate(self.leaves):
            pieces = self._pieces(np.asarray(arrays[leaf.group][leaf.name]), number)
            if not all(np.array_equal(piece.view(np.uint8), wanted.view(np.uint8)) for piece, wanted in pieces):
                raise ValueError(f"{leaf.group}/{leaf.name} is not what was saved")

    def wipe(self) -> None:
        """Spoil this rank's values, so that only a restore can bring them back."""
        for array in self.arrays:
            array.view(np.uint8)[:] = 0

    def _pieces(self, array: Array, number: int) -> Iterator[tuple[Array, Array]]:
        """Pairs of a piece of an array and what belongs there."""
        flat, noise = array.reshape(-1), self._noise[array.dtype]
        place = self.rank * flat.size + 7919 * number
        begin = 0
        while begin < flat.size:
            first = (place + begin) % _NOISE
            end = min(flat.size, begin + _NOISE - first)
            yield flat[begin:end], noise[first : first + end - begin]
            begin = end


def to_numpy(tree: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Array]]:
    """This rank's part of a state of any framework, without a copy."""
    return {group: {name: _array(value) for name, value in values.items()} for group, values in tree.items()}


def _array(value: Any) -> Array:
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "addressable_shards"):
        return np.asarray(value.addressable_shards[0].data)
    local = value.to_local() if hasattr(value, "to_local") else value
    return local.numpy() if local.element_size() != 2 else local.view(dtype=_int16()).numpy().view(BF16)


def _int16() -> Any:
    import torch

    return torch.int16
