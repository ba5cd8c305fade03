"""Plan a save from the shapes, dtypes and shardings of a state. The plan is reused while they do not change."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from allranks.arrays.base import DeclaredArray, OpenTree
from allranks.checkpoint.agree import describe_arrays
from allranks.checkpoint.file_layout import FileLayout, chunk_grain, plan_file_layout
from allranks.checkpoint.items import item_of
from allranks.checkpoint.manifest_decode import MOST_DIMENSIONS
from allranks.checkpoint.manifest_encode import encode_leaves
from allranks.checkpoint.save_plan import (
    CheckpointLayout,
    FilePlan,
    join_layouts,
    plan_checkpoint_layout,
    plan_file,
    total_bytes,
)
from allranks.errors import CannotStore
from allranks.gate.ticket import digest_of_descriptions


@dataclass(slots=True)
class LeavesTextCheck:
    """Records whether the manifest's text for a plan's leaves was read back and found valid, which is checked only
    once.
    """

    done: bool = False


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """The file that this rank writes for an item ("": for all arrays of no item).

    ``arrays``: the numbers of its arrays in the tree.
    """

    item: str
    arrays: tuple[int, ...]
    plan: FilePlan
    file_layout: FileLayout


@dataclass(frozen=True, slots=True)
class PreparedSave:
    """The plan of a save.

    ``declared``: the arrays that are written. ``ties``: for all other arrays, the path of the array with the same
    memory.
    ``digest``: the digest of the declarations. ``nbytes``: the bytes of all arrays.
    ``files``: the files that this rank writes. ``items``: the order of all ranks' files.
    ``checkpoint_layout``: the layout of all files; ``leaves``: the manifest's text for it. Both on rank 0 only.
    """

    declared: tuple[DeclaredArray, ...]
    ties: dict[str, str]
    digest: str
    nbytes: int
    files: tuple[PlannedFile, ...]
    items: tuple[str, ...]
    checkpoint_layout: CheckpointLayout | None
    leaves: str
    read_back: LeavesTextCheck = field(default_factory=LeavesTextCheck)


class SavePlanner:
    """Plans saves for one rank of ``size``, and keeps the last plan. Each of the ``items`` gets its own files."""

    def __init__(self, rank: int, size: int, items: Collection[str] = ()) -> None:
        self._rank, self._size, self._items = rank, size, items
        self._last: tuple[object, PreparedSave] | None = None

    def prepare_save(self, tree: OpenTree) -> PreparedSave:
        """Return the plan for a tree, reused if the tree is unchanged. Raises CannotStore for too many dimensions."""
        key = tree.hash_key, tuple(tree.tied_arrays.items())
        if self._last is None or self._last[0] != key:
            _refuse_dimensions(tree.declared_arrays, rank=self._rank)
            self._last = key, self._make_plan(tree.declared_arrays, tree.tied_arrays)
        return self._last[1]

    def _make_plan(self, every: tuple[DeclaredArray, ...], tied: dict[int, int]) -> PreparedSave:
        items = [item_of(one.path, self._items) for one in every]
        tied = {number: other for number, other in tied.items() if items[number] == items[other]}
        ties = {every[number].path: every[other].path for number, other in tied.items()}
        arrays = [number for number in range(len(every)) if number not in tied]
        declared = tuple(every[number] for number in arrays)
        nbytes = total_bytes(declared)
        groups = {item: [n for n in arrays if items[n] == item] for item in dict.fromkeys(items)}
        files = [self._file_of_item(every, item, numbers, chunk_grain(nbytes)) for item, numbers in groups.items()]
        whole_layout = None
        if self._rank == 0:
            layouts = [
                plan_checkpoint_layout([every[n] for n in numbers], size=self._size) for numbers in groups.values()
            ]
            whole_layout = layouts[0] if len(layouts) == 1 else join_layouts(layouts, [one.path for one in declared])
        return PreparedSave(
            declared,
            ties,
            digest_of_descriptions(describe_arrays(declared, ties)),
            nbytes,
            tuple(file for file in files if file is not None),
            tuple(groups),
            whole_layout,
            encode_leaves(whole_layout.leaves) if whole_layout else "",
        )

    def _file_of_item(
        self, every: Sequence[DeclaredArray], item: str, numbers: Sequence[int], most: int
    ) -> PlannedFile | None:
        """Return this rank's file of an item; None if this rank writes no bytes of it."""
        declared = tuple(every[number] for number in numbers)
        plan = plan_file(declared, rank=self._rank, size=self._size)
        return (
            PlannedFile(item, tuple(numbers), plan, plan_file_layout(declared, plan, grain_bytes=most))
            if plan.bytes
            else None
        )


def _refuse_dimensions(declared: Sequence[DeclaredArray], *, rank: int) -> None:
    for one in declared:
        if len(one.shape) > MOST_DIMENSIONS:
            raise CannotStore(
                f"rank {rank}: a leaf of the state cannot be stored: {one.path!r} has {len(one.shape)} dimensions: "
                f"expected {MOST_DIMENSIONS} at most.",
                ranks=(rank,),
                leaf=one.path,
                remedy="Reshape it to fewer dimensions.",
            )
