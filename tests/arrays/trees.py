"""A checkpoint without files: the bytes of one tree are copied into another."""

from __future__ import annotations

from typing import Any

import numpy as np

from allranks.arrays.base import OpenTree
from allranks.arrays.detect import open_tree
from allranks.arrays.grid import cell_extent
from allranks.arrays.leaves.numpy import DTYPES
from allranks.arrays.saved_tree import SavedArray, SavedTree


def wholes(opened: OpenTree, rank: int = 0) -> dict[str, np.ndarray]:
    """Return every array, put together from the cells that this rank holds; what it does not hold is zero."""
    found = {}
    for number, leaf in enumerate(opened.declared_arrays):
        whole = np.zeros(leaf.shape, DTYPES[leaf.dtype])
        for at, holders in enumerate(leaf.split.holders):
            extent = cell_extent(at, leaf.shape, leaf.split.cuts)
            if rank in holders and extent.size:
                whole[extent.slices] = opened.cell_bytes(number, at).data.view(whole.dtype).reshape(extent.shape)
        found[leaf.path] = whole
    return found


def fill(opened: OpenTree, arrays: dict[str, np.ndarray]) -> None:
    """Fill every target from whole arrays."""
    for number, leaf in enumerate(opened.declared_arrays):
        for target in opened.targets_of_array(number):
            assert target.buffer.shape == target.extent.shape
            target.buffer[...] = arrays[leaf.path][target.extent.slices]


def carried(state: Any, template: Any, *, rank: int = 0, size: int = 1) -> Any:
    """Return ``template`` with the contents of ``state``, all of which this rank must hold."""
    source = open_tree(state, rank=rank, size=size)
    leaves = {one.path: SavedArray(one.shape, one.dtype, one.kind) for one in source.declared_arrays}
    saved = SavedTree({**leaves, **source.values})
    into = open_tree(template, rank=rank, size=size, for_restore=True, saved=saved)
    assert [leaf.path for leaf in into.declared_arrays] == [leaf.path for leaf in source.declared_arrays]
    fill(into, wholes(source, rank))
    return into.rebuild_tree(source.values)
