"""Read torch's state in this process: generators, tensors, and how long its collectives wait."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import RandomSampler


def as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """Return the state of a generator, or the values of a tensor, as a NumPy array; None for other values."""
    if isinstance(value, torch.Generator):
        return np.asarray(value.get_state()).reshape(1, -1)
    if isinstance(value, torch.Tensor):
        return np.asarray(value.detach().cpu())
    return None


def group_timeout() -> float | None:
    """Return how many seconds a collective of the default process group waits for other ranks; None without a group."""
    if not (dist.is_available() and dist.is_initialized()):
        return None
    group: Any = dist.group.WORLD
    backend = group._get_backend(torch.device("cuda" if dist.get_backend() == "nccl" else "cpu"))
    return float(backend.options._timeout.total_seconds())


def shuffles_by_global_generator(loader: Any) -> bool:
    """Return whether a DataLoader shuffles, and takes the seed of each epoch's order from torch's global generator."""
    sampler = getattr(loader, "sampler", None)
    return isinstance(sampler, RandomSampler) and sampler.generator is None
