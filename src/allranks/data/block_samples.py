"""Hold the places of samples in blocks that are in memory, and decode the samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import BadSample, GatheredRows, Gatherer, Rows

PADDING = BadSample("padding behind the last sample")

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class BlockSamples:
    """The places of samples: the one with ``ids[i]`` is at ``positions[i]`` of ``blocks[keys[i]]``; -1 for padding.

    The arrays have one shape. A position is that of ``Rows.positions``, or else the number of a row.
    """

    keys: Ids
    positions: Ids
    ids: Ids
    blocks: Mapping[int, Rows]


def join_samples(parts: Sequence[BlockSamples]) -> BlockSamples:
    """Join the samples of several streams along the last dimension."""
    if len(parts) == 1:
        return parts[0]
    keys, positions, ids = (
        np.concatenate([getattr(part, name) for part in parts], -1) if parts else np.empty(0, np.int64)
        for name in ("keys", "positions", "ids")
    )
    return BlockSamples(keys, positions, ids, {key: block for part in parts for key, block in part.blocks.items()})


class Decoder:
    """Decodes samples of blocks.

    With ``any_order``, the order of decoding does not matter, so a few samples at a time stay in the processor's cache
    until they are in a batch; otherwise each block is decoded once for all samples that are needed of it.
    """

    def __init__(self, blocks: Mapping[int, Rows]) -> None:
        self._kinds: dict[Gatherer | None, dict[int, Rows]] = {}
        for key, block in blocks.items():
            self._kinds.setdefault(block.gatherer if isinstance(block, GatheredRows) else None, {})[key] = block
        self.any_order = None not in self._kinds

    def samples(self, keys: Ids, positions: Ids) -> list[Any]:
        """Return the samples at these positions, PADDING where a key is -1; arrays of one dimension."""
        if len(self._kinds) == 1 and keys.min(initial=0) >= 0:
            ((gatherer, blocks),) = self._kinds.items()
            return _gathered(gatherer, blocks, keys, positions)
        found: list[Any] = [PADDING] * len(keys)
        for gatherer, blocks in self._kinds.items():
            here = np.flatnonzero(np.isin(keys, list(blocks)))
            some = _gathered(gatherer, blocks, keys[here], positions[here])
            for place, sample in zip(here.tolist(), some, strict=True):
                found[place] = sample
        return found


def _gathered(gatherer: Gatherer | None, blocks: Mapping[int, Rows], keys: Ids, positions: Ids) -> list[Any]:
    return _block_by_block(blocks, keys, positions) if gatherer is None else gatherer.gather(blocks, keys, positions)


def _block_by_block(blocks: Mapping[int, Rows], keys: Ids, rows: Ids) -> list[Any]:
    """Return the samples of rows of several blocks, in this order."""
    by_block = np.argsort(keys, kind="stable")
    sorted_keys, sorted_rows = keys[by_block], rows[by_block]
    bounds = [0, *(np.flatnonzero(np.diff(sorted_keys)) + 1).tolist(), len(keys)]
    grouped: list[Any] = []
    for begin, end in pairwise(bounds if len(keys) else []):
        grouped += blocks[int(sorted_keys[begin])].take(sorted_rows[begin:end])
    places = np.empty(len(keys), np.int64)
    places[by_block] = np.arange(len(keys))
    return [grouped[place] for place in places.tolist()]
