"""Samples that were found in blocks which are in memory, and are decoded when they are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import Bad, Rows, Together

PADDING = Bad("padding behind the last sample")

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Where samples are: the one with ``ids[i]`` is at ``spots[i]`` of ``blocks[keys[i]]``; all are -1 for padding.

    The arrays have one shape. A spot is what ``Rows.spots`` says, else the number of a row.
    """

    keys: Ids
    spots: Ids
    ids: Ids
    blocks: Mapping[int, Rows]


def beside(parts: Sequence[Found]) -> Found:
    """Return what was found in several lanes as one, joined along the last dimension."""
    if len(parts) == 1:
        return parts[0]
    keys, spots, ids = (
        np.concatenate([getattr(part, name) for part in parts], -1) if parts else np.empty(0, np.int64)
        for name in ("keys", "spots", "ids")
    )
    return Found(keys, spots, ids, {key: block for part in parts for key, block in part.blocks.items()})


class Decoder:
    """Decodes samples of blocks.

    With ``any_order``, which sample follows which does not matter, so a few at a time are as well, and lie in the
    processor's cache until they are in a batch; else a block is gone to once for all that is needed of it.
    """

    def __init__(self, blocks: Mapping[int, Rows]) -> None:
        self._kinds: dict[Together | None, dict[int, Rows]] = {}
        for key, block in blocks.items():
            self._kinds.setdefault(getattr(block, "together", None), {})[key] = block
        self.any_order = None not in self._kinds

    def samples(self, keys: Ids, spots: Ids) -> list[Any]:
        """Return the samples at these places, PADDING where a key is -1; arrays of one dimension."""
        if len(self._kinds) == 1 and keys.min(initial=0) >= 0:
            ((together, blocks),) = self._kinds.items()
            return _gathered(together, blocks, keys, spots)
        found: list[Any] = [PADDING] * len(keys)
        for together, blocks in self._kinds.items():
            here = np.flatnonzero(np.isin(keys, list(blocks)))
            some = _gathered(together, blocks, keys[here], spots[here])
            for place, sample in zip(here.tolist(), some, strict=True):
                found[place] = sample
        return found


def _gathered(together: Together | None, blocks: Mapping[int, Rows], keys: Ids, spots: Ids) -> list[Any]:
    return _block_by_block(blocks, keys, spots) if together is None else together.gather(blocks, keys, spots)


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
