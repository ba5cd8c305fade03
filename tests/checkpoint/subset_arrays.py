"""Arrays that lie on the devices of some ranks only, as JAX shows them: an adapter of leaves for simulated ranks.

Who holds an array alone cannot see that: to him it looks like one that every rank has for itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from allranks.arrays.base import CellBytes, CellCopy, FillTarget, RankSplit
from allranks.arrays.grid import cell_extent, intern_split, replicated_split
from allranks.arrays.leaves.base import ArraySpec, LeafFill, OpenContext


@dataclass
class SubsetArray:
    """The rows of an array, dealt out to ``ranks`` (``whole``: each of them has all). ``content`` is what all have."""

    content: np.ndarray[Any, Any]
    ranks: tuple[int, ...]
    whole: bool = False

    def split(self, context: OpenContext) -> RankSplit:
        return _split(self.content.ndim, self.ranks, self.whole or not self.content.ndim, context.rank, context.size)

    def parts(self, context: OpenContext) -> dict[int, np.ndarray[Any, Any]]:
        """Return what this rank holds, by cell."""
        if context.rank not in self.ranks:
            return {}
        split = self.split(context)
        mine = [number for number, holders in enumerate(split.holders) if context.rank in holders]
        return {number: self.content[cell_extent(number, self.content.shape, split.cuts).slices] for number in mine}


@lru_cache
def _split(dimensions: int, ranks: tuple[int, ...], whole: bool, rank: int, size: int) -> RankSplit:
    if ranks == (rank,):
        return replicated_split(dimensions, size)
    cuts = (1 if whole else len(ranks), *(1,) * (dimensions - 1))[:dimensions]
    return intern_split(RankSplit(cuts, (ranks,) if whole else tuple((one,) for one in ranks)))


def claims(kind: type) -> bool:
    return kind is SubsetArray


def opener(_node: object, _context: OpenContext) -> None:
    return None


def spec(leaf: SubsetArray, context: OpenContext) -> ArraySpec:
    return _spec(leaf.content.shape, leaf.content.dtype.name, leaf.split(context))


@lru_cache
def _spec(shape: tuple[int, ...], dtype: str, split: RankSplit) -> ArraySpec:
    return ArraySpec(shape, dtype, split)


def cell_bytes(leaf: SubsetArray, cell: int, context: OpenContext) -> CellBytes:
    return CellBytes(_bytes(leaf.parts(context)[cell]), mutable=True)


def copies(leaf: SubsetArray, context: OpenContext) -> tuple[CellCopy, ...]:
    parts = leaf.parts(context).items()
    return tuple(CellCopy(at, "host", "numpy", part, True, lambda part=part: _bytes(part)) for at, part in parts)


def memory(_leaf: SubsetArray) -> None:
    return None


def leaf_fill(leaf: SubsetArray, context: OpenContext) -> LeafFill:
    split = leaf.split(context)
    targets = tuple(
        FillTarget(cell_extent(at, leaf.content.shape, split.cuts), part) for at, part in leaf.parts(context).items()
    )
    return LeafFill(targets, lambda: leaf)


def _bytes(part: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.ascontiguousarray(part).reshape(-1).view(np.uint8)
