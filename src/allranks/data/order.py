"""Make permutations and generators that are the same on every machine and in every version of NumPy.

They use the raw Philox stream, which NumPy never changes, because ``Generator.permutation`` may change.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray


def make_key(*words: int | str) -> int:
    """Return a 128-bit key for these words. Other words, or another order of words, give an unrelated key."""
    text = "".join(f"{type(word).__name__}:{len(str(word))}:{word}" for word in words)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def random_bits(key: int, count: int) -> NDArray[np.uint64]:
    """Return the first ``count`` random 64-bit numbers that a key generates."""
    words = np.array([key & (1 << 64) - 1, key >> 64], np.uint64)
    return np.random.Philox(key=words).random_raw(count)


def permutation(key: int, count: int) -> NDArray[np.int64]:
    """Return the numbers 0 ... count-1 in a random order that depends only on the key."""
    return np.argsort(random_bits(key, count), kind="stable")


def generator(key: int) -> np.random.Generator:
    """Return a random generator that depends only on the key, for augmentation."""
    return np.random.Generator(np.random.Philox(_Seed(key)))  # type: ignore[arg-type]  # any ISeedSequence will do


class _Seed(np.random.bit_generator.ISeedSequence):
    """A key in the form that Philox reads.

    With ``Philox(key=...)``, NumPy would ask the system for entropy first, which takes 15 us.
    """

    def __init__(self, key: int) -> None:
        self._words = np.array([key & (1 << 64) - 1, key >> 64], np.uint64)

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        assert (n_words, np.dtype(dtype)) == (2, np.uint64), (n_words, dtype)
        return self._words
