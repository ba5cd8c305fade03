"""Compute the grid of cells into which a sharding divides an array, and the box of elements of each cell."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from allranks.arrays.base import RankSplit
from allranks.extent import Extent

# One object for equal splits, so that leaves with the same split are found by identity.
_known: dict[RankSplit, RankSplit] = {}


def intern_split(split: RankSplit) -> RankSplit:
    """Return one object for all equal splits, so that they can be compared by identity. It is never freed."""
    return _known.setdefault(split, split)


@lru_cache
def replicated_split(dimension_count: int, size: int) -> RankSplit:
    """Return the split of an array that each of ``size`` ranks holds completely."""
    return intern_split(RankSplit((1,) * dimension_count, (tuple(range(size)),)))


def split_of(shape: tuple[int, ...], parts: Iterable[tuple[Iterable[int], Extent]]) -> RankSplit | None:
    """Return the split whose cells are ``parts``; None if they form no grid.

    Each part is a box of elements and the ranks that hold it. A part may occur several times. Empty parts count: they
    are the last cells of a dimension.
    """
    ranks: defaultdict[Extent, set[int]] = defaultdict(set)
    for holders, extent in parts:
        ranks[extent].update(holders)
    starts = [sorted({extent.offset[d] for extent in ranks}) for d in range(len(shape))]
    cuts = tuple(map(len, starts))
    holders_of = {cell_number_of(extent, shape, cuts): held for extent, held in ranks.items()}
    if any(extent != cell_extent(number, shape, cuts) for number, extent in zip(holders_of, ranks, strict=False)):
        return None
    if len(holders_of) != math.prod(cuts):
        return None
    return intern_split(RankSplit(cuts, tuple(tuple(sorted(held)) for _, held in sorted(holders_of.items()))))


def cell_extent(cell_number: int, shape: tuple[int, ...], cuts: tuple[int, ...]) -> Extent:
    """Return the box of elements of a cell, given the cell's number in row-major order."""
    offset, extent = [], []
    for whole, count in zip(reversed(shape), reversed(cuts), strict=True):
        cell_number, index = divmod(cell_number, count)
        step = -(-whole // count)
        offset.append(min(index * step, whole))
        extent.append(min(step, whole - offset[-1]))
    return Extent(tuple(reversed(offset)), tuple(reversed(extent)))


def cell_number_of(extent: Extent, shape: tuple[int, ...], cuts: tuple[int, ...]) -> int:
    """Return the row-major number of the cell that begins at the offset of ``extent``."""
    number = 0
    for at, whole, count in zip(extent.offset, shape, cuts, strict=True):
        step = -(-whole // count)
        number = number * count + (-(-at // step) if step else 0)
    return number


def extent_on_device(
    index: Sequence[int], shape: tuple[int, ...], axes: Sequence[tuple[int, int] | None], mesh: Sequence[int]
) -> Extent | None:
    """Return the box of elements that the device at ``index`` of a mesh holds; None if they form no box.

    ``axes`` has one item for each axis of the mesh, in order. None: the axis does not cut. ``(dimension, groups)``: the
    axis divides that dimension. It divides what the earlier axes have left to this device, as in torch: cut into
    ``groups`` chunks (usually 1), of each of which this device takes its part.
    """
    kept = [[range(whole)] for whole in shape]
    for axis, mine, count in zip(axes, index, mesh, strict=True):
        if axis is None:
            continue
        at, groups = axis
        length = sum(map(len, kept[at]))
        chunks = (_chunk_bounds(0, length, groups, number) for number in range(groups))
        kept[at] = _join_runs(
            run for chunk in chunks for run in _elements_between(kept[at], *_chunk_bounds(*chunk, count, mine))
        )
    if any(len(runs) > 1 for runs in kept):
        return None
    offset = tuple(runs[0].start if runs else whole for runs, whole in zip(kept, shape, strict=True))
    return Extent(offset, tuple(sum(map(len, runs)) for runs in kept))


def _chunk_bounds(start: int, stop: int, count: int, number: int) -> tuple[int, int]:
    """Return the begin and end of chunk ``number`` of ``count`` chunks. All have one size, except the last ones."""
    step = -(-(stop - start) // count)
    return min(start + number * step, stop), min(start + (number + 1) * step, stop)


def _elements_between(runs: Iterable[range], start: int, stop: int) -> Iterator[range]:
    """Yield the elements with the numbers ``start`` to ``stop - 1`` of a sequence that is given as runs."""
    for run in runs:
        yield run[max(start, 0) : max(stop, 0)]
        start, stop = start - len(run), stop - len(run)


def _join_runs(runs: Iterable[range]) -> list[range]:
    """Return the same elements in as few ranges as possible."""
    joined: list[range] = []
    for run in runs:
        if joined and run and joined[-1].stop == run.start:
            joined[-1] = range(joined[-1].start, run.stop)
        elif run:
            joined.append(run)
    return joined
