"""Provide the adapter for the random generators of NumPy and of the standard library."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from allranks.arrays.generators.base import GlobalState

_KINDS = (np.random.Generator, np.random.RandomState, random.Random)
_GLOBAL = {"random": random.random, "numpy.random": np.random.random_sample}


def owns(generator: object) -> bool:
    return isinstance(generator, _KINDS) and not isinstance(generator, random.SystemRandom)


def of_module(name: str) -> Any:
    return getattr(_GLOBAL.get(name), "__self__", None)


def state_of(generator: Any) -> bytes:
    return repr(_generator_state(generator)).encode()


def _generator_state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    legacy = isinstance(generator, np.random.RandomState)
    return _as_json(generator.get_state(legacy=False) if legacy else generator.bit_generator.state)


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_json(one) for key, one in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


def reseed(generator: Any, seed: int) -> Any:
    if isinstance(generator, random.Random):
        generator.seed(seed)
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(np.random.RandomState(np.random.MT19937(np.random.SeedSequence(seed))).get_state())
    else:
        generator.bit_generator.state = type(generator.bit_generator)(np.random.SeedSequence(seed)).state
    return generator


def global_states() -> Iterator[GlobalState]:
    python = of_module("random")
    state = python.getstate()
    words = np.array(state[1], np.uint32)
    yield _twister_state("random", words[:-1], int(words[-1]), partial(python.setstate, state))
    legacy = of_module("numpy.random")
    found = legacy.get_state(legacy=False)
    if found["bit_generator"] == "MT19937":
        inner = found["state"]
        yield _twister_state("numpy.random", inner["key"], int(inner["pos"]), partial(legacy.set_state, found))


def _twister_state(module: str, key: Any, position: int, put_back: Any) -> GlobalState:
    return GlobalState(module, key, position, key.tobytes(), put_back)
