"""Plan which parts of a state are compared between which ranks. It needs the declarations only, not the data.

The plan is equal at every step. Ranks that hold the same cells of the same leaves are a group. The entries of a group
are these cells, in the tree's order, and the JSON values, which every rank holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from allranks.arrays.base import DeclaredArray, RankSplit
from allranks.arrays.grid import cell_extent
from allranks.consistency.verdict import LeafCoverage
from allranks.digest import digest, show
from allranks.gate.ticket import describe_array, digest_of_descriptions

VALUE = -1  # instead of an array's number


@dataclass(frozen=True, slots=True)
class ComparedEntry:
    """What is compared: one cell of the array with the number ``array``, or the JSON value at ``path``.

    ``what``: the dtype and shape of the array. ``part``: the box of the cell; "" for a complete array.
    """

    array: int
    cell: int
    path: str
    what: str
    part: str


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    """The plan of a comparison: what this rank compares with which other ranks.

    ``descriptions``: a text for each leaf, which must be equal on all ranks. ``digest``: the digest of these texts.
    ``placement``: a digest of which rank holds which cell.
    ``groups``: the entries of each group of this rank, by a label made from the group's ranks.
    ``covered``: for every array, how many ranks hold it.
    """

    descriptions: Mapping[str, str]
    digest: str
    placement: str
    groups: Mapping[str, tuple[ComparedEntry, ...]]
    covered: tuple[LeafCoverage, ...]


def plan_comparison(
    declared_arrays: Sequence[DeclaredArray], values: Iterable[str], off_host: Sequence[bool], *, rank: int, size: int
) -> ComparisonPlan:
    """Return the plan. ``off_host``: for each array, whether it is on a device, where digests are different."""
    everyone = _label_of_ranks(range(size))
    seen: dict[int, _SplitView] = {}  # by identity: equal splits are one object
    descriptions: dict[str, str] = {}
    held: list[str] = []
    groups: dict[str, list[ComparedEntry]] = {}
    covered: list[LeafCoverage] = []
    for number, (one, off) in enumerate(zip(declared_arrays, off_host, strict=True)):
        layout = seen.get(id(one.split)) or seen.setdefault(
            id(one.split), _layout_of_split(one.split, everyone, rank=rank)
        )
        what = describe_array(one.dtype, one.shape, (), kind=one.kind)
        pieces = describe_array(one.dtype, one.shape, one.split.cuts, kind=one.kind)
        descriptions[one.path] = f"{pieces}{' on a device' if off else ''}"
        held.append(layout.held)
        covered.append(LeafCoverage(one.path, len(one.split.holders), layout.fewest))
        for at, label in layout.mine.items():
            groups.setdefault(label, []).append(ComparedEntry(number, at, one.path, what, _part_text(one, at)))
    for path in values:
        descriptions[path] = "a value"
        groups.setdefault(everyone, []).append(ComparedEntry(VALUE, 0, path, "", ""))
    by_label = {label: tuple(entries) for label, entries in groups.items()}
    return ComparisonPlan(
        descriptions, digest_of_descriptions(descriptions), show(digest(*held)), by_label, tuple(covered)
    )


@dataclass(frozen=True, slots=True)
class _SplitView:
    """How one rank takes part in the split of an array.

    ``held``: a digest of which rank holds which cell; "" if all ranks hold everything.
    ``mine``: the label of the group of each cell that this rank holds.
    ``fewest``: the number of holders of the cell with the fewest.
    """

    held: str
    mine: Mapping[int, str]
    fewest: int


def _layout_of_split(split: RankSplit, everyone: str, *, rank: int) -> _SplitView:
    labels = [_label_of_ranks(ranks) for ranks in split.holders]
    held = "" if labels == [everyone] else show(digest(*labels))
    mine = {at: labels[at] for at, ranks in enumerate(split.holders) if rank in ranks}
    return _SplitView(held, mine, min(map(len, split.holders)))


def _label_of_ranks(ranks: Iterable[int]) -> str:
    return show(digest(",".join(map(str, ranks))))[:16]


def _part_text(one: DeclaredArray, number: int) -> str:
    if len(one.split.holders) == 1:
        return ""
    extent = cell_extent(number, one.shape, one.split.cuts)
    return f"[{', '.join(f'{a}:{b}' for a, b in zip(extent.offset, extent.end, strict=True))}]"
