"""Provide the adapter for the random generators of PyTorch."""

from __future__ import annotations

from typing import Any

import torch

_BITS = (1 << 63) - 1


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
