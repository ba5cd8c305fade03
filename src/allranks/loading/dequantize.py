"""Read quantised weights as floats, which are computed from the stored numbers and scales while reading."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.arrays.base import FillTarget
from allranks.arrays.cast import cast_into
from allranks.arrays.leaves.numpy import DTYPES
from allranks.errors import UnknownFormat
from allranks.extent import Extent
from allranks.loading.fit import QuantizedWeight, StoredArray
from allranks.loading.formats.base import CheckpointSource, SourceDescription, Value, checked_shape, shorten
from allranks.loading.quantized import FOUR_BITS, INT8, KNOWN, SCALED

_Floats = NDArray[np.float32]
# What bitsandbytes multiplies by: int8 numbers are 127 times the weights over their row's largest.
_LARGEST_STATE, _LARGEST_BLOCK = 64 << 10, 1 << 16
_PER_127 = np.float32(1 / 127)


class DequantizedSource:
    """A Source that wraps another one: quantised weights are float32 leaves, all other leaves are unchanged.

    The arrays that make up a quantised weight (scales, maps) are not leaves of it. Raises UnknownFormat if the scales
    have no known layout.
    """

    def __init__(self, source: CheckpointSource, found: Sequence[QuantizedWeight]) -> None:
        self._source = source
        self._packed = {one.name: one for one in found if one.method in KNOWN}
        self._unpack: dict[str, Callable[[QuantizedWeight, Extent], _Floats]] = {
            SCALED: self._scaled,
            INT8: self._int8,
            FOUR_BITS: self._four_bits,
        }
        self._blocks = source.description.quantization.get("weight_block_size")
        parts = {name for one in self._packed.values() for name in one.parts.values()}
        shapes = {name: StoredArray(self._weight_shape(one), "float32") for name, one in self._packed.items()}
        left = {
            name: shapes.get(name, one) for name, one in source.leaves.items() if name in shapes or name not in parts
        }
        self.leaves: Mapping[str, StoredArray] = left

    @property
    def description(self) -> SourceDescription:
        description = self._source.description
        return replace(
            description, notes=(*description.notes, f"{len(self._packed)} quantised weights are read as floats")
        )

    @property
    def values(self) -> Mapping[str, Value]:
        return self._source.values

    def read(self, targets_by_leaf: Sequence[tuple[str, FillTarget]]) -> None:
        self._source.read([one for one in targets_by_leaf if one[0] not in self._packed])
        for name, target in targets_by_leaf:
            if one := self._packed.get(name):
                cast_into(target.buffer, self._read_weight(one, target.extent), leaf_path=name)

    def _read_weight(self, one: QuantizedWeight, extent: Extent) -> _Floats:
        """Return a part of a weight as floats. Raises UnknownFormat if its arrays do not fit together."""
        try:
            return self._unpack[one.method](one, extent)
        except (LookupError, TypeError, ValueError, ArithmeticError, MemoryError) as error:
            raise self._unknown(
                one, f"its arrays do not fit together: {type(error).__name__} {error!s:.200}"
            ) from error

    def are_known_equal(self, name: str, other_name: str) -> bool:
        return not self._packed.keys() & {name, other_name} and self._source.are_known_equal(name, other_name)

    def partial_checksums(self) -> Any:
        return self._source.partial_checksums()

    def check_partial(self, partial_checksums: Sequence[Any]) -> None:
        self._source.check_partial(partial_checksums)

    def _weight_shape(self, one: QuantizedWeight) -> tuple[int, ...]:
        """Return the shape of a dequantised weight. Raises UnknownFormat if its arrays do not fit together."""
        stored = self._source.leaves[one.parts["numbers"]].shape
        if one.method == SCALED:
            self._elements_per_scale(one, stored)
        if "zero" in one.parts:
            raise self._unknown(one, "it has a zero point")
        if "format" in one.parts and self._read_array(one, "format").any():
            raise self._unknown(one, "it is not stored row by row")
        if one.method == INT8 and self._source.leaves[one.parts["scale"]].shape != stored[:1]:
            raise self._unknown(
                one, f"its SCB has the shape {self._source.leaves[one.parts['scale']].shape}: expected {stored[:1]}"
            )
        return self._quant_state(one)["shape"] if one.method == FOUR_BITS else stored

    def _unknown(self, one: QuantizedWeight, why: str) -> UnknownFormat:
        return UnknownFormat(
            f"dequantize: {one.name!r} ({one.method}): {why}.",
            remedy="Load it with transformers, and save the result of its dequantize().",
        )

    def _read_array(self, one: QuantizedWeight, role: str) -> NDArray[Any]:
        """Return the complete array that has this role in a quantised weight."""
        return self._read_part(one, role, Extent.of_shape(self._source.leaves[one.parts[role]].shape))

    def _read_part(self, one: QuantizedWeight, role: str, extent: Extent) -> NDArray[Any]:
        name = one.parts[role]
        found = np.empty(extent.shape, DTYPES[self._source.leaves[name].dtype])
        self._source.read([(name, FillTarget(extent, found))])
        return found

    def _elements_per_scale(self, one: QuantizedWeight, shape: tuple[int, ...]) -> list[int]:
        """Return, for each dimension, how many elements share one scale. Raises UnknownFormat if shapes do not fit."""
        scales = self._scale_shape(one, shape)
        blocks = self._blocks if isinstance(self._blocks, list) else []
        blocks = [1] * (len(shape) - len(blocks)) + blocks
        steps = [
            1 if scale == n else n if scale == 1 else by for scale, n, by in zip(scales, shape, blocks, strict=False)
        ]
        fits = all(
            type(by) is int and by > 0 and -(-n // by) == many
            for n, by, many in zip(shape, steps, scales, strict=False)
        )
        if not len(scales) == len(steps) == len(shape) or not (fits or 0 in shape):
            raise self._unknown(
                one,
                f"its scales have the shape {list(scales)}, which does not fit {list(shape)} with "
                f"weight_block_size {self._blocks!r:.40}",
            )
        return steps

    def _scale_shape(self, one: QuantizedWeight, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the scales, with as many dimensions as the weight."""
        found = self._source.leaves[one.parts["scale"]].shape
        if math.prod(found) == 1:
            return (1,) * len(shape)
        return (*found, *(1,) * (len(shape) - 1)) if len(found) == 1 else found

    def _scaled(self, one: QuantizedWeight, extent: Extent) -> _Floats:
        shape = self._source.leaves[one.name].shape
        scales = self._read_array(one, "scale").astype(np.float32).reshape(self._scale_shape(one, shape))
        ranges = zip(extent.offset, extent.shape, self._elements_per_scale(one, shape), strict=True)
        places = [np.arange(first, first + many) // by for first, many, by in ranges]
        numbers = self._read_part(one, "numbers", extent).astype(np.float32)
        return np.asarray(numbers * (scales[np.ix_(*places)] if places else scales), np.float32)

    def _int8(self, one: QuantizedWeight, extent: Extent) -> _Floats:
        rows = slice(extent.offset[0], extent.offset[0] + extent.shape[0])
        scales = self._read_array(one, "scale").astype(np.float32)[rows].reshape(-1, *(1,) * (len(extent.shape) - 1))
        return np.asarray(self._read_part(one, "numbers", extent).astype(np.float32) * scales * _PER_127, np.float32)

    def _quant_state(self, one: QuantizedWeight) -> dict[str, Any]:
        """Return bitsandbytes' ``quant_state`` of a weight with 4 bits, checked. Raises UnknownFormat."""
        try:
            if math.prod(self._source.leaves[one.parts["state"]].shape) > _LARGEST_STATE:
                raise ValueError(f"expected at most {_LARGEST_STATE:,} bytes")
            state = json.loads(self._read_array(one, "state").tobytes())
            shape, block, nested = checked_shape(state["shape"]), state["blocksize"], state.get("nested_blocksize", 1)
            if not all(type(n) is int and 0 < n <= _LARGEST_BLOCK for n in (block, nested)):
                raise ValueError(f"blocksize {shorten(block)}, nested_blocksize {shorten(nested)}")
            if not 0 < math.prod(shape) <= 2 * self._numbers(one):
                raise ValueError(f"shape {shape}")
            return {**state, "shape": shape}
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise self._unknown(
                one, f"its quant_state cannot be used: {type(error).__name__} {error!s:.200}"
            ) from error

    def _numbers(self, one: QuantizedWeight) -> int:
        return math.prod(self._source.leaves[one.parts["numbers"]].shape)

    def _four_bits(self, one: QuantizedWeight, extent: Extent) -> _Floats:
        """Return a part of a 4-bit weight as floats.

        Each byte holds two indices into the map of values; the high half is the first.
        """
        state = self._quant_state(one)
        size = math.prod(state["shape"])
        bytes_ = self._read_array(one, "numbers").reshape(-1)
        places = np.stack([bytes_ >> 4, bytes_ & 15], axis=1).reshape(-1)[:size]
        largest = self._read_array(one, "absmax")
        if "nested_absmax" in one.parts:
            nested = self._read_array(one, "nested_absmax").repeat(state["nested_blocksize"])[: largest.size]
            largest = self._read_array(one, "nested_quant_map")[largest] * nested + np.float32(state["nested_offset"])
        scales = largest.astype(np.float32).repeat(state["blocksize"])[:size]
        found = (self._read_array(one, "quant_map")[places] * scales).reshape(state["shape"])
        box = tuple(slice(first, first + many) for first, many in zip(extent.offset, extent.shape, strict=True))
        return np.asarray(found[box], np.float32)
