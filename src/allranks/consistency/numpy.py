"""Compute fingerprints of arrays in host memory with NumPy, as fingerprint.py defines, in pieces that fit the cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.consistency.fingerprint import MIX_1, MIX_2, WORD, Fingerprint, K, M, WordLayout, used_bits

Words = NDArray[np.uint32]

_BLOCK = 1 << 16  # words


def fingerprint_box(data: NDArray[np.uint8], word_layout: WordLayout, *, dtype: str, itemsize: int) -> Fingerprint:
    """Return the fingerprint of a box, given its bytes. Releases the interpreter lock while it computes."""
    words: NDArray[Any] = data.view(f"u{min(itemsize, 4)}")
    if (bits := used_bits(dtype, itemsize)) < 8:
        words = words & np.uint8((1 << bits) - 1)
    first = second = 0
    for block, keys in _blocks_with_keys(words, word_layout):
        h, g = _mix_block(block, keys)
        first, second = first + int(h), second + int(g)
    return first & WORD, second & WORD


def _blocks_with_keys(words: NDArray[Any], word_layout: WordLayout) -> Iterator[tuple[NDArray[Any], Words]]:
    """Yield the words in two-dimensional blocks, with the key of each word: its position times K."""
    inner, stride = (word_layout.lengths[-1], word_layout.strides[-1]) if word_layout.lengths else (1, 0)
    if words.size == 0:
        return
    rows = words.reshape(-1, inner)
    wide, high = min(inner, _BLOCK), max(1, _BLOCK // inner)
    across = np.arange(wide, dtype=np.uint32) * np.uint32(stride * K & WORD)
    for top in range(0, len(rows), high):
        down = _keys_of_rows(word_layout, top, min(top + high, len(rows)))
        for left in range(0, inner, wide):
            block = rows[top : top + high, left : left + wide]
            ahead = np.uint32(left * stride * K & WORD)
            yield block, (down + ahead)[:, None] + across[: block.shape[1]]


def _keys_of_rows(word_layout: WordLayout, start: int, stop: int) -> Words:
    rest = np.arange(start, stop, dtype=np.uint64)
    keys = np.full(stop - start, word_layout.base * K & WORD, np.uint32)
    for length, stride in zip(word_layout.lengths[-2::-1], word_layout.strides[-2::-1], strict=True):
        rest, at = np.divmod(rest, np.uint64(length))
        keys += at.astype(np.uint32) * np.uint32(stride * K & WORD)
    return keys


def _mix_block(block: NDArray[Any], keys: Words) -> tuple[Any, Any]:
    h = keys ^ block
    t = h >> 16
    h ^= t
    h *= np.uint32(MIX_1)
    np.right_shift(h, 13, out=t)
    h ^= t
    h *= np.uint32(MIX_2)
    np.right_shift(h, 16, out=t)
    h ^= t
    first = h.sum(dtype=np.uint32)
    h += keys
    h *= np.uint32(M)
    np.right_shift(h, 15, out=t)
    h ^= t
    return first, h.sum(dtype=np.uint32)
