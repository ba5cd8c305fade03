"""Find out whether a program draws from a global random generator, and whether a saved tree holds its state."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from allranks.arrays.base import OpenTree
from allranks.arrays.generators.base import GlobalState
from allranks.arrays.random_state import loaded_adapters

Words = np.ndarray[Any, np.dtype[np.uint32]]

_BLOCK = 624  # the words of a Mersenne Twister, which it replaces at once
_BLOCKS_AT_ONCE = 256
_MOST_BLOCKS = 1 << 16  # about 40 million draws, 0.1 s
_LARGEST_STATE = 1 << 14  # elements of an array that may be the state of a generator

_ARGUMENTS = {"random": "python=random", "numpy.random": "numpy=numpy.random", "torch": "torch=torch"}


def random_state_of(modules: Iterable[str]) -> str:
    """Return the call that makes a RandomState of these modules, as text."""
    return f"allranks.RandomState({', '.join(_ARGUMENTS[module] for module in modules)})"


def read_global_states() -> dict[str, GlobalState]:
    """Return the states of the global generators of this process, by module, of the libraries that are imported."""
    return {state.module: state for adapter in loaded_adapters() for state in adapter.global_states()}


def count_draws(before: GlobalState, after: GlobalState) -> int:
    """Return how many words of 32 bits were drawn between two states of a generator; 0 if it was seeded or set.

    It is 0 after more than 40 million draws, too.
    """
    drawn = after.position - before.position
    if np.array_equal(before.key, after.key):
        return max(drawn, 0)
    expected = _outputs_of(after.key)
    stream = np.random.MT19937()
    stream.state = {"bit_generator": "MT19937", "state": {"key": before.key, "pos": _BLOCK}}
    for first in range(1, _MOST_BLOCKS, _BLOCKS_AT_ONCE):
        blocks = stream.random_raw(_BLOCK * _BLOCKS_AT_ONCE).reshape(-1, _BLOCK)
        for block in np.flatnonzero(blocks[:, 0] == expected[0]):
            if np.array_equal(blocks[block], expected):
                return int(first + block) * _BLOCK + drawn
    return 0


def _outputs_of(key: Words) -> Words:
    """Return what a Mersenne Twister outputs for these words."""
    words: Words = key ^ (key >> np.uint32(11))
    words ^= (words << np.uint32(7)) & np.uint32(0x9D2C5680)
    words ^= (words << np.uint32(15)) & np.uint32(0xEFC60000)
    words ^= words >> np.uint32(18)
    return words


def held_modules(states: Iterable[GlobalState], tree: OpenTree, extra: object) -> frozenset[str]:
    """Return the modules whose states are in a tree of rank 0 or in ``extra``, also as ``getstate()`` returns them."""
    images = [tree.cell_bytes(number, 0).data.tobytes() for number in _small_arrays(tree)]
    numbers = set(_numbers_in([*tree.values.values(), *tree.main_values.values(), *tree.rank_values.values(), extra]))
    return frozenset(
        state.module
        for state in states
        if any(state.image in image for image in images) or numbers.issuperset(state.key.tolist())
    )


def _small_arrays(tree: OpenTree) -> Iterator[int]:
    """Yield the numbers of the arrays that may be the state of a generator: small ones that rank 0 holds completely."""
    for number, declared in enumerate(tree.declared_arrays):
        if not declared.dtype.startswith("uint"):
            continue
        shape = declared.shape[1:] if declared.per_rank else declared.shape
        is_held = declared.per_rank or (max(declared.split.cuts, default=1) == 1 and 0 in declared.split.holders[0])
        if is_held and math.prod(shape) <= _LARGEST_STATE:
            yield number


def _numbers_in(value: object) -> Iterator[int]:
    if type(value) is int:
        yield value
    elif isinstance(value, dict):
        yield from _numbers_in(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _numbers_in(one)
