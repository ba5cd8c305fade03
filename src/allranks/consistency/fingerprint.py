"""Define a fingerprint of an array that does not depend on its sharding, nor on the device that computes it.

The array is a sequence of 32-bit words: its elements in row-major order. An element of up to 32 bits is one word. A
longer one is several words, low ones first (a complex number: the real part first). For word ``w`` at position ``i`` of
the *complete* array, all arithmetic mod 2^32::

    k = i * K
    h = mix(w ^ k)
    g = spin((h + k) * M)

``mix`` is the final mix of MurmurHash3, and ``spin(x)`` is ``x ^ x >> 15``. Both are one-to-one.

The fingerprint is the pair (sum of all h, sum of all g). A sum can be computed in any order and in any parts. So each
device computes the fingerprint of its own shard, in one pass and without communication. The array's fingerprint is the
sum of its shards' fingerprints. One changed word, even by one bit, always changes both sums, and so do exchanged rows.
Any other difference is missed once in 2^64. (XOR instead of the sum would miss everything that occurs twice. Words
whose distance is a multiple of 2^32 have the same k.)

The fingerprint compares bits: -0.0 differs from 0.0, and a NaN equals a NaN with the same bits. It does not protect
against forgery.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from allranks.extent import Extent

K, M = 0x9E3779B1, 0x27D4EB2F
MIX_1, MIX_2 = 0x85EBCA6B, 0xC2B2AE35
WORD = (1 << 32) - 1

Fingerprint = tuple[int, int]


@dataclass(frozen=True, slots=True)
class WordLayout:
    """The positions of a box's words in the complete array: word (a, b, ...) is at ``base + a * strides[0] + ...``.

    ``base`` is mod 2^32. Dimensions that are contiguous in the box are joined to one. So a complete array has one
    dimension, and a scalar none.
    """

    base: int
    lengths: tuple[int, ...]
    strides: tuple[int, ...]


def uint32s_per_element(itemsize: int) -> int:
    """Return the number of 32-bit words of an element of ``itemsize`` bytes."""
    return max(1, itemsize // 4)


@lru_cache
def used_bits(dtype: str, itemsize: int) -> int:
    """Return how many bits of an element are used: dtypes narrower than a byte take one byte in memory."""
    narrow = re.fullmatch(r"(?:u?int|float)([1-7])(?:_.*)?", dtype)
    return int(narrow[1]) if narrow else 8 * itemsize


def word_layout(shape: Sequence[int], extent: Extent, *, per_element: int = 1) -> WordLayout:
    """Return the layout of the words of a box in an array whose elements have ``per_element`` words."""
    place, step = 0, per_element
    joined = [(per_element, 1)] if per_element > 1 else []  # (length, stride), the innermost first
    for whole, at, many in zip(reversed(shape), reversed(extent.offset), reversed(extent.shape), strict=True):
        place += at * step
        if joined and joined[-1][0] * joined[-1][1] == step:
            joined[-1] = (joined[-1][0] * many, joined[-1][1])
        elif many != 1:
            joined.append((many, step))
        step *= whole
    lengths, strides = zip(*reversed(joined), strict=True) if joined else ((), ())
    return WordLayout(place & WORD, lengths, tuple(stride & WORD for stride in strides))


def total_fingerprint(fingerprints: Iterable[Fingerprint]) -> Fingerprint:
    """Return the fingerprint of an array, given the fingerprints of its shards; each shard must occur once."""
    first = second = 0
    for h, g in fingerprints:
        first, second = first + h, second + g
    return first & WORD, second & WORD
