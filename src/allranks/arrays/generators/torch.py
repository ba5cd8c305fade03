"""Provide the adapter for the random generators of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from allranks.arrays.generators.base import GlobalState

_BITS = (1 << 63) - 1
# The saved form of a generator of the CPU: seed, draws left in the block, a flag, the next place, and 624 words.
_HEAD = np.dtype([("seed", "<u8"), ("left", "<i4"), ("seeded", "<i4"), ("next", "<u8"), ("words", "<u8", 624)])


def owns(generator: object) -> bool:
    return isinstance(generator, torch.Generator)


def of_module(name: str) -> Any:
    if name == "torch":
        return torch.default_generator
    if name == "torch.cuda" and torch.cuda.is_available():
        device = torch.cuda.current_device()  # (there are no generators before CUDA is initialised)
        return torch.cuda.default_generators[device]
    return None


def state_of(generator: torch.Generator) -> bytes:
    return generator.get_state().numpy().tobytes()


def reseed(generator: torch.Generator, seed: int) -> torch.Generator:
    return generator.manual_seed(seed & _BITS)


def global_states() -> Iterator[GlobalState]:
    state = torch.default_generator.get_state()
    image = state.numpy().tobytes()
    head = np.frombuffer(image, _HEAD, count=1)[0]
    used = len(head["words"]) if head["left"] == 1 else int(head["next"])
    put_back = partial(torch.default_generator.set_state, state)
    yield GlobalState("torch", head["words"].astype(np.uint32), used, image, put_back)
