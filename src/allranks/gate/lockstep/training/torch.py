"""Number the batches of torch's DataLoaders, and name parameters the same way on every rank."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import dataloader

from allranks.gate.lockstep import position

# How many elements of a parameter, from either end, tell it from others.
_SHOWN = 2
# The last batch of each loader: the ids of the batch and its parts, and its number.
_given: WeakKeyDictionary[Any, tuple[tuple[int, ...], int]] = WeakKeyDictionary()


@functools.cache
def number_batches(is_training_thread: Callable[[], bool]) -> None:
    """Number the batches that the training thread takes from torch's DataLoaders from now on."""
    iterator: Any = dataloader._BaseDataLoaderIter
    take: Callable[..., Any] = iterator.__next__

    @functools.wraps(take)
    def numbered(loader: Any) -> Any:
        batch = take(loader)
        if is_training_thread():
            parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, list | tuple) else ()
            _given[loader] = (id(batch), *map(id, parts)), loader._num_yielded
        return batch

    iterator.__next__ = numbered
    position.batch_number_hooks.append(_number_of)
    position.label_hooks.append(_label_of)


def _number_of(value: Any) -> int | None:
    """Return the number of the batch that ``value`` is, or belongs to; None if it is not part of a batch."""
    for parts, number in list(_given.values()):
        if id(value) in parts:
            return number
    return None


def _label_of(value: Any) -> str:
    """Return the shape and a few elements of a parameter, which are equal on all replicas; "" for any other value."""
    if not isinstance(value, torch.nn.Parameter):
        return ""
    flat = value.detach().reshape(-1)
    some = torch.cat([flat[:_SHOWN], flat[-_SHOWN:]]).tolist()
    return f"a parameter of {list(value.shape)} with {', '.join(f'{one:.4g}' for one in some)}"
