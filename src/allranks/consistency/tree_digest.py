"""Compute one number for a state (``allranks.tree_digest``) that depends on neither sharding nor number of ranks."""

from __future__ import annotations

import json
from typing import Any

from allranks.arrays.base import DeclaredArray, OpenTree
from allranks.consistency.digests import fingerprints_of_copies
from allranks.consistency.fingerprint import WORD, Fingerprint, total_fingerprint
from allranks.consistency.placement import open_world_tree
from allranks.consistency.verify import verify
from allranks.digest import digest
from allranks.world.base import World
from allranks.world.detect import current


def tree_digest(state: Any, world: World | None = None) -> str:
    """Return a fingerprint of a state as 16 hexadecimal digits. **Every rank must call.**

    It is equal on every rank, and does not depend on the number of ranks or the mesh. If four ranks save a state and
    three ranks restore it, its fingerprint is the same. It covers everything that ``verify`` compares, and names,
    dtypes and shapes. Raises Mismatch on every rank, naming leaves and ranks, if copies of the same values differ.
    ``world`` is the current one by default.
    """
    world = world or current()
    verify(state, world=world)
    tree = open_world_tree(state, world, for_comparison=True)
    h, g = total_fingerprint(world.all_gather(_sum_of_rank(tree, world.rank), name="tree_digest"))
    return f"{h:08x}{g:08x}"


def _sum_of_rank(tree: OpenTree, rank: int) -> Fingerprint:
    """Return this rank's part of the sum. If several ranks hold a cell, one of them, chosen in turn, adds it."""
    mine = []
    for number, one in enumerate(tree.declared_arrays):
        cells = {cell for cell, ranks in enumerate(one.split.holders) if ranks[(number + cell) % len(ranks)] == rank}
        mine.append(tuple({copy.cell: copy for copy in tree.copies_of_array(number) if copy.cell in cells}.values()))
    found = fingerprints_of_copies(tree.declared_arrays, mine)
    arrays = (
        _weight_fingerprint(total_fingerprint(fingerprint), one)
        for fingerprint, one in zip(found, tree.declared_arrays, strict=True)
    )
    words = [json.dumps(item) for item in tree.values.items()] + [
        _leaf_description(one) for one in tree.declared_arrays
    ]
    names = (_uint32_halves(digest(word)) for word in words) if rank == 0 else ()
    return total_fingerprint([*arrays, *names])


def _weight_fingerprint(fingerprint: Fingerprint, one: DeclaredArray) -> Fingerprint:
    """Return the fingerprint times two odd numbers made from the leaf's path, so that it is specific to the leaf."""
    return fingerprint[0] * (digest(one.path) | 1) & WORD, fingerprint[1] * (digest(one.path, "") | 1) & WORD


def _leaf_description(one: DeclaredArray) -> str:
    return json.dumps([one.path, one.dtype, one.shape, one.kind])


def _uint32_halves(value: int) -> Fingerprint:
    return value & WORD, value >> 32 & WORD
