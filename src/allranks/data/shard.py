"""Divide samples that the user already has over the ranks: ``allranks.shard``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allranks.data.arguments import check_choice
from allranks.data.indexed_shard import IndexedShard
from allranks.data.iterable_shard import IterableShard
from allranks.data.plan import TAILS, Tail
from allranks.errors import DataError
from allranks.world.base import World
from allranks.world.detect import current


def shard(
    samples: Any,
    world: World | None = None,
    *,
    seed: int = 0,
    shuffle: bool = False,
    tail: Tail = "pad",
    padding: Any = None,
    state: Mapping[str, Any] | None = None,
    compare: bool = True,
) -> IndexedShard | IterableShard:
    """Return this rank's part of ``samples``, to iterate over. **Every rank must call, and iterate equally far.**

    An object with a length and items (a list, an array, a map-style torch Dataset, a datasets.Dataset) is divided
    exactly: each sample is on one rank, for any number of ranks. With ``shuffle``, ``seed`` and epoch decide the order.
    An object that can only be iterated (a generator, a streaming datasets.IterableDataset) is divided as well as
    possible; its ``guarantees`` say what holds. Iterating once is one epoch; iterating again begins the next epoch.

    Every rank gets the same number of samples. If they do not divide evenly, ``tail`` decides: ``pad`` fills the last
    round with ``padding``, ``drop`` leaves the last round out. No sample is ever repeated. ``state`` is a ``.state()``
    from a checkpoint. For batches, for files of which a rank reads 1/N, and for workers, use ``allranks.Dataset``.

    Give all of the same samples on every rank. A few are compared, because samples that are divided already would be
    divided once more. ``compare=False`` skips that comparison, for samples that differ by rank on purpose.

    Raises, on every rank: DataError if there is no sample, or the state is of other data; Mismatch if the ranks do not
    have the same samples.
    """
    check_choice("tail", tail, TAILS)
    of = world or current()
    if isinstance(samples, Mapping):
        keys = ", ".join(map(repr, list(samples)[:8]))
        raise DataError(
            f"expected a list of samples, found a {type(samples).__name__}.",
            remedy=f"Pass the list under one of the keys {keys}, or make a list of the values.",
        )
    iterable_only = any(kind.__name__ == "IterableDataset" for kind in type(samples).__mro__)  # torch's has items, too
    if hasattr(samples, "__len__") and hasattr(samples, "__getitem__") and not iterable_only:
        how: dict[str, Any] = {"tail": tail, "padding": padding, "state": state, "compare": compare}
        return IndexedShard(samples, of, seed=seed, shuffle=shuffle, **how)
    if not hasattr(samples, "__iter__"):
        raise DataError(
            f"expected an iterable of samples, found a {type(samples).__module__}.{type(samples).__qualname__}.",
            remedy="Give an object with a length and items, or an iterable; an allranks.Dataset has .loader(world).",
        )
    if shuffle:
        raise DataError(
            f"a {type(samples).__qualname__} can only be iterated, so allranks cannot shuffle its samples.",
            remedy="Shuffle the samples before, in the same way on every rank; or pass the files to allranks.Dataset.",
        )
    return IterableShard(samples, of, tail=tail, padding=padding, state=state, compare=compare)
