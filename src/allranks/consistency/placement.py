"""Agree on which ranks hold an array that is only on the devices of one process.

To that process, such an array looks like one that every rank holds for itself. To the other ranks, it is on that
process' devices. So no rank can find out the holders by itself; all ranks together can.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from allranks.arrays.base import CellBytes, CellCopy, DeclaredArray, FillTarget, OpenTree, RankSplit
from allranks.arrays.detect import open_tree
from allranks.arrays.grid import intern_split
from allranks.errors import Mismatch, name_ranks
from allranks.world.base import World

# The last trees of a world with an agreed placement: the next step reuses it.
_KEPT = 8
_known: WeakKeyDictionary[World, list[tuple[Hashable, PlacedTree]]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class PlacedTree:
    """A tree whose ``declared_arrays`` have the holders of its arrays as all ranks agreed on them."""

    tree: OpenTree
    declared_arrays: tuple[DeclaredArray, ...]

    @property
    def hash_key(self) -> Hashable:
        return self.tree.hash_key, "placed"

    @property
    def values(self) -> dict[str, bool | int | float | str | None]:
        return self.tree.values

    @property
    def skipped_leaves(self) -> dict[str, str]:
        return self.tree.skipped_leaves

    @property
    def main_values(self) -> dict[str, bool | int | float | str | None]:
        return self.tree.main_values

    @property
    def rank_values(self) -> dict[str, bool | int | float | str | None]:
        return self.tree.rank_values

    @property
    def rank_local_paths(self) -> tuple[str, ...]:
        return self.tree.rank_local_paths

    @property
    def tied_arrays(self) -> dict[int, int]:
        return self.tree.tied_arrays

    @property
    def follows_checkpoint(self) -> bool:
        return self.tree.follows_checkpoint

    @property
    def kept_settings(self) -> dict[str, Any]:
        return self.tree.kept_settings

    def cell_bytes(self, array: int, cell: int) -> CellBytes:
        return self.tree.cell_bytes(array, cell)

    def memory_key(self, array: int) -> Hashable | None:
        return self.tree.memory_key(array)

    def copies_of_array(self, array: int) -> tuple[CellCopy, ...]:
        return self.tree.copies_of_array(array)

    def targets_of_array(self, array: int) -> tuple[FillTarget, ...]:
        return self.tree.targets_of_array(array)

    @property
    def encoded_arrays(self) -> tuple[int, ...]:
        return self.tree.encoded_arrays

    def decode_objects(self, values: Mapping[str, bool | int | float | str | None]) -> None:
        self.tree.decode_objects(values)

    def rebuild_tree(self, values: Mapping[str, bool | int | float | str | None]) -> object:
        return self.tree.rebuild_tree(values)


def open_world_tree(state: object, world: World, **how: Any) -> OpenTree:
    """Return ``open_tree`` of a state. If ``agree_placement`` was called for an equal tree, its result is reused."""
    tree = open_tree(state, rank=world.rank, size=world.size, **how)
    for key, like in _known.get(world, ()):
        if key == tree.hash_key:
            return PlacedTree(tree, like.declared_arrays)
    return tree


def agree_placement(tree: OpenTree, world: World, *, name: str) -> OpenTree:
    """Return the tree with the holders that all ranks agreed on. **Every rank must call** if their views differ.

    Raises Mismatch on every rank if the ranks' views contradict each other.
    """
    mine = {} if isinstance(tree, PlacedTree) else _holders_of_arrays(tree.declared_arrays, world.size)
    agreed, odd = world.exchange("placement", name, mine, decide=_merge_holders)
    if isinstance(tree, PlacedTree) or odd is not None:
        raise _mismatch_of_holders(odd, who=f"rank {world.rank}: {name}")
    placed = PlacedTree(tree, tuple(_with_holders(one, agreed.get(one.path), mine) for one in tree.declared_arrays))
    kept = _known.setdefault(world, [])
    kept.insert(0, (tree.hash_key, placed))
    del kept[_KEPT:]
    return placed


def _holders_of_arrays(declared: Sequence[DeclaredArray], size: int) -> dict[str, list[int]]:
    """Return, by path, the ranks that hold an array, as far as this rank sees; only for arrays that some rank lacks."""
    unions: dict[int, list[int]] = {}
    found = {}
    for one in declared:
        split = one.split
        ranks = unions.get(id(split))
        if ranks is None:
            ranks = unions[id(split)] = sorted({rank for holders in split.holders for rank in holders})
        if len(ranks) < size:
            found[one.path] = ranks
    return found


def _merge_holders(said: Sequence[Mapping[str, list[int]]]) -> list[Any]:
    """Return the holders of each array that some rank lacks, and the first array with contradicting views (or None)."""
    merged: dict[str, list[int]] = {}
    for one in said:
        for path, ranks in one.items():
            merged.setdefault(path, ranks)
    for path, ranks in merged.items():
        silent = [rank for rank, one in enumerate(said) if path not in one]
        if any(one.get(path, ranks) != ranks for one in said) or (silent and silent != ranks):
            return [merged, [path, ranks, silent]]
    return [merged, None]


def _with_holders(one: DeclaredArray, ranks: list[int] | None, mine: Mapping[str, Any]) -> DeclaredArray:
    if ranks is None or one.path in mine:
        return one
    return replace(one, split=intern_split(RankSplit(one.split.cuts, (tuple(ranks),) * len(one.split.holders))))


def _mismatch_of_holders(odd: Sequence[Any] | None, *, who: str) -> Mismatch:
    if odd is None:
        return Mismatch(f"{who}: the ranks disagree on which ranks hold which parts of the arrays.")
    path, ranks, silent = odd
    return Mismatch(
        f"{who}: leaf {path!r} is on the devices of {name_ranks(ranks)} according to some ranks, "
        f"and {name_ranks(silent) if silent else 'others'} see it elsewhere.",
        ranks=silent,
        leaf=path,
        remedy="Create the array on every rank with the same sharding.",
    )
