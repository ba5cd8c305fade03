"""A fingerprint of an array that does not depend on how it is cut, nor on who computes it. Pure.

The array is a row of words: its elements in row-major order, one of up to 32 bits a word, longer ones as several words,
low ones first (of a complex number: the real part's first). Of word ``w`` at place ``i`` of the *whole* array, all
arithmetic mod 2^32::

    k = i * K                        the place
    h = mix(w ^ k)                   mix: MurmurHash3's final one, which is one-to-one
    g = spin((h + k) * M)            spin(x) = x ^ x >> 15, one-to-one too

The fingerprint is the pair (sum of all h, sum of all g). A sum can be taken in any order and in any parts: so each
device takes that of its own shard, in one pass and without a word to the others, and the whole array's is the sum of
its shards'. One word that changed, if only by a bit, always changes both sums; rows that changed places do, too, and
what differs otherwise does but for one time in 2^64. (XOR in the place of the sum would be blind to everything that
happens twice. Words that are a multiple of 2^32 places apart have one k.)

It is of bits: -0.0 is not 0.0, and a NaN equals a NaN of the same bits. Nobody is kept from forging it.
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
    """Where the words of a box stand in the whole array: word (a, b, ...) at ``base + a * strides[0] + ...``.

    ``base`` is mod 2^32. Dimensions of the box that run on are one here: a whole array has one, a scalar none.
    """

    base: int
    lengths: tuple[int, ...]
    strides: tuple[int, ...]


def uint32s_in(itemsize: int) -> int:
    """Return of how many words an element of so many bytes is."""
    return max(1, itemsize // 4)


@lru_cache
def bits_in(dtype: str, itemsize: int) -> int:
    """Return how many bits of an element count: dtypes narrower than a byte take one in memory."""
    narrow = re.fullmatch(r"(?:u?int|float)([1-7])(?:_.*)?", dtype)
    return int(narrow[1]) if narrow else 8 * itemsize


def word_layout(shape: Sequence[int], extent: Extent, *, per_element: int = 1) -> WordLayout:
    """Return where a box of an array stands, whose elements are of so many words."""
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


def total(fingerprints: Iterable[Fingerprint]) -> Fingerprint:
    """Return the fingerprint of an array of those of its shards, each of which counts once."""
    first = second = 0
    for h, g in fingerprints:
        first, second = first + h, second + g
    return first & WORD, second & WORD
