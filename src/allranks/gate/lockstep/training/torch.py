"""What a program of torch does between its collectives: batches of its loaders, and what names its parameters."""

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
# What each loader gave last: the batch with its parts, by identity, and its number.
_given: WeakKeyDictionary[Any, tuple[tuple[int, ...], int]] = WeakKeyDictionary()


@functools.cache
def number_batches(trains_here: Callable[[], bool]) -> None:
    """Number the batches that the training thread takes from now on."""
    iterator: Any = dataloader._BaseDataLoaderIter
    take: Callable[..., Any] = iterator.__next__

    @functools.wraps(take)
    def numbered(loader: Any) -> Any:
        batch = take(loader)
        if trains_here():
            parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, list | tuple) else ()
            _given[loader] = (id(batch), *map(id, parts)), loader._num_yielded
        return batch

    iterator.__next__ = numbered
    position.numbered.append(_number_of)
    position.labelled.append(_label_of)


def _number_of(value: Any) -> int | None:
    """Return the number of the batch that a value is, or is a part of."""
    for parts, number in list(_given.values()):
        if id(value) in parts:
            return number
    return None


def _label_of(value: Any) -> str:
    """Return the form and a few elements of a parameter: alike on all replicas of it."""
    if not isinstance(value, torch.nn.Parameter):
        return ""
    flat = value.detach().reshape(-1)
    some = torch.cat([flat[:_SHOWN], flat[-_SHOWN:]]).tolist()
    return f"a parameter of {list(value.shape)} with {', '.join(f'{one:.4g}' for one in some)}"
