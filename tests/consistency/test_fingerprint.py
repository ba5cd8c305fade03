"""The fingerprint: its definition word by word, and what it must notice."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.arrays.base import RankSplit
from allranks.arrays.grid import cell_extent
from allranks.consistency import numpy as ours
from allranks.consistency.fingerprint import (
    Fingerprint,
    K,
    M,
    total_fingerprint,
    uint32s_per_element,
    used_bits,
    word_layout,
)
from allranks.extent import Extent

Array = np.ndarray[Any, Any]
MASK = (1 << 32) - 1


def of_part(part: Array, whole: tuple[int, ...], extent: Extent) -> Fingerprint:
    data = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
    where = word_layout(whole, extent, per_element=uint32s_per_element(part.itemsize))
    return ours.fingerprint_box(data, where, dtype=part.dtype.name, itemsize=part.itemsize)


def fingerprint(array: Array) -> Fingerprint:
    return of_part(array, array.shape, Extent.of_shape(array.shape))


def by_definition(array: Array) -> Fingerprint:
    """The definition of fingerprint.py in Python's own numbers."""
    size = min(4, array.itemsize)
    first = second = 0
    data = array.tobytes()
    for place in range(len(data) // size):
        word = int.from_bytes(data[place * size : place * size + size], "little")
        word &= (1 << min(32, used_bits(array.dtype.name, array.itemsize))) - 1
        k = place * K & MASK
        h = word ^ k
        h = (h ^ h >> 16) * 0x85EBCA6B & MASK
        h = (h ^ h >> 13) * 0xC2B2AE35 & MASK
        h ^= h >> 16
        g = (h + k) * M & MASK
        first, second = first + h, second + (g ^ g >> 15)
    return first & MASK, second & MASK


def any_bits(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    raw = np.random.default_rng(seed).integers(0, 256, int(np.prod(shape)) * kind.itemsize, np.uint8)
    raw &= (1 << min(8, 1 if dtype == "bool" else used_bits(dtype, kind.itemsize))) - 1
    return raw.view(kind).reshape(shape)


DTYPES = ["bool", "int4", "float8_e4m3fn", "int8", "bfloat16", "float32", "int64", "float64", "complex64", "complex128"]


@settings(max_examples=60)
@given(st.sampled_from(DTYPES), st.lists(st.integers(0, 7), max_size=4), st.data())
def test_any_cut_of_any_array_adds_up_to_the_definition(dtype: str, sizes: list[int], data: st.DataObject) -> None:
    """Of the whole, and of the sum over the cells of any grid."""
    shape = tuple(sizes)
    array = any_bits(dtype, shape)
    assert fingerprint(array) == by_definition(array)
    cuts = tuple(data.draw(st.integers(1, 3)) for _ in shape)
    cells = [cell_extent(number, shape, cuts) for number in range(int(np.prod(cuts)))]
    covered = [extent for extent in cells if extent.size]
    assert total_fingerprint(of_part(array[extent.slices], shape, extent) for extent in covered) == fingerprint(array)


@pytest.mark.parametrize("shape", [(70_001,), (3, 70_001), (70_001, 3), (300, 5, 60)], ids=str)
def test_blocks_of_a_long_array_are_one(shape: tuple[int, ...]) -> None:
    """Rows longer and shorter than a block, whole and as the cells of a grid."""
    array = any_bits("uint16", shape)
    split = RankSplit((2,) * len(shape), ())
    cells = [cell_extent(number, shape, split.cuts) for number in range(2 ** len(shape))]
    assert total_fingerprint(of_part(array[extent.slices], shape, extent) for extent in cells) == fingerprint(array)
    assert fingerprint(any_bits("uint16", (500,))) == by_definition(any_bits("uint16", (500,)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_single_bit_changes_both_sums(dtype: str) -> None:
    """Exhaustively: every bit that counts of every element of a small array."""
    array = any_bits(dtype, (3, 5))
    before = fingerprint(array)
    bits = range(1 if dtype == "bool" else used_bits(dtype, array.itemsize))
    for place, bit in itertools.product(range(array.size), bits):
        flat = array.copy().reshape(-1).view(np.uint8)
        flat[place * array.itemsize + bit // 8] ^= 1 << bit % 8
        after = fingerprint(flat.view(array.dtype).reshape(array.shape))
        assert after[0] != before[0]
        assert after[1] != before[1]


def test_what_a_sum_or_an_xor_would_not_see() -> None:
    """The same flip twice, rows that changed places, -0.0 for 0.0, another NaN: all are seen."""
    array = np.arange(1 << 14, dtype=np.float32).reshape(128, 128)
    before = fingerprint(array)
    flipped = array.copy()
    flipped.view(np.uint32)[3:5, 7] ^= 1 << 31
    assert int(np.bitwise_xor.reduce(flipped.view(np.uint32), None)) == int(
        np.bitwise_xor.reduce(array.view(np.uint32), None)
    )
    swapped = array[np.r_[1, 0, 2:128]]
    zero = np.zeros(9, np.float32)
    nans = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)
    assert fingerprint(flipped) != before
    assert fingerprint(swapped) != before
    assert fingerprint(-zero) != fingerprint(zero)
    assert fingerprint(nans[:1]) != fingerprint(nans[1:])
    assert fingerprint(np.zeros(3, bool)) != fingerprint(np.zeros(4, bool))


def test_pairs_of_flips_in_many_small_elements() -> None:
    """Booleans leave a hash the least to work with: none of 2,000 random pairs of flips is missed."""
    array = np.zeros(1 << 12, bool)
    before, found = fingerprint(array), 0
    pairs = np.random.default_rng(0).integers(0, array.size, (2000, 2))
    for one, other in pairs[pairs[:, 0] != pairs[:, 1]]:
        array[[one, other]] = True
        found += fingerprint(array) == before
        array[[one, other]] = False
    assert found == 0
