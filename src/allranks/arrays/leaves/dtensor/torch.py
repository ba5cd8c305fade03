"""Provide the adapter for DTensors: each rank holds a part of the array. A part in CPU memory is filled in place.

This is a separate file because importing ``torch.distributed.tensor`` takes most of a second.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.placement_types import Placement

from allranks.arrays.base import CellBytes, CellCopy, RankSplit
from allranks.arrays.grid import cell_extent, extent_on_device, split_of
from allranks.arrays.leaves import torch as plain
from allranks.arrays.leaves.base import ArraySpec, LeafFill, LeafRefused, OpenContext
from allranks.arrays.walk import Opener
from allranks.extent import Extent


def claims(kind: type) -> bool:
    return issubclass(kind, DTensor)


def opener(_node: object, _context: OpenContext) -> Opener | None:
    return None


def spec(leaf: DTensor, context: OpenContext) -> ArraySpec:
    name, kind = plain.dtype_name(leaf, context), plain.dtype_kind(leaf)
    made = _spec(leaf.device_mesh, leaf.placements, tuple(leaf.shape), name, kind)
    mine, local_part = _held_extent(leaf, context), tuple(plain.local_part(leaf).shape)
    if mine is not None and mine.shape != local_part and mine.size + leaf.to_local().numel() > 0:
        raise LeafRefused(
            f"a DTensor whose placements {leaf.placements} give this rank {mine.shape}, but which has {local_part}",
            "Create it with distribute_tensor, or pass the complete shape to from_local.",
        )
    return made


@lru_cache(maxsize=1 << 14)
def _spec(
    mesh: DeviceMesh, placements: tuple[Placement, ...], shape: tuple[int, ...], name: str, kind: str
) -> ArraySpec:
    return ArraySpec(shape, name, _split_of(mesh, placements, shape), kind)


@lru_cache(maxsize=1 << 14)
def _split_of(mesh: DeviceMesh, placements: tuple[Placement, ...], shape: tuple[int, ...]) -> RankSplit:
    if any(placement.is_partial() for placement in placements):
        raise LeafRefused(
            "a DTensor with Partial placements, whose sums are not computed", "Call its redistribute() first."
        )
    # A _StridedShard takes its part of each of `split_factor` chunks.
    axes = [None if p.is_replicate() else (p.dim, getattr(p, "split_factor", 1)) for p in cast(Any, placements)]
    ranks = mesh.mesh.numpy()
    parts = [((int(rank),), extent_on_device(index, shape, axes, ranks.shape)) for index, rank in np.ndenumerate(ranks)]
    split = None if any(extent is None for _, extent in parts) else split_of(shape, cast(Any, parts))
    if split is None:
        raise LeafRefused(
            f"a DTensor whose placements {placements} make no grid of equal cells",
            "Pad the dimension to a multiple of the devices, or shard another one.",
        )
    return split


def _held_extent(leaf: DTensor, context: OpenContext) -> Extent | None:
    """Return the box of elements that this rank holds; None if this rank is not in the mesh."""
    return _extent_of_rank(leaf.device_mesh, leaf.placements, tuple(leaf.shape), context.rank)


@lru_cache(maxsize=1 << 14)
def _extent_of_rank(
    mesh: DeviceMesh, placements: tuple[Placement, ...], shape: tuple[int, ...], rank: int
) -> Extent | None:
    split = _split_of(mesh, placements, shape)
    number = _cell_of_rank(split, rank)
    return None if number is None else cell_extent(number, shape, split.cuts)


def _cell_of_rank(split: RankSplit, rank: int) -> int | None:
    return next((number for number, holders in enumerate(split.holders) if rank in holders), None)


def cell_bytes(leaf: DTensor, cell: int, context: OpenContext) -> CellBytes:
    return plain.cell_bytes(plain.local_part(leaf), cell, context)


def copies(leaf: DTensor, context: OpenContext) -> tuple[CellCopy, ...]:
    number = _cell_of_rank(_split_of(leaf.device_mesh, leaf.placements, tuple(leaf.shape)), context.rank)
    return () if number is None or leaf.is_meta else (plain.make_cell_copy(plain.local_part(leaf), number, context),)


def address(leaf: DTensor) -> int:
    local_part = leaf._local_tensor
    return (local_part.data_ptr() if type(local_part) is torch.Tensor else 0) or id(leaf)


def memory(leaf: DTensor) -> Hashable:
    return plain.memory_key_of_part(leaf, plain.local_part(leaf))


def leaf_fill(leaf: DTensor, context: OpenContext) -> LeafFill:
    extent = _held_extent(leaf, context)
    if extent is None or (extent.size == 0 and not leaf.is_meta):
        return LeafFill((), lambda: leaf)
    return plain.leaf_fill_of(
        leaf, plain.local_part(leaf), extent, wrap=lambda local_part: _make_dtensor(leaf, local_part)
    )


def _make_dtensor(leaf: DTensor, local_part: torch.Tensor) -> DTensor:
    return DTensor.from_local(
        local_part, leaf.device_mesh, leaf.placements, run_check=False, shape=leaf.shape, stride=leaf.stride()
    )
