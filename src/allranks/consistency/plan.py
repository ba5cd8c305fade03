"""Plan which parts of a state are compared between which ranks: from declarations alone, equal at every step. Pure.

Ranks that hold the same cells of the same leaves are a group. Its entries are these cells, in the tree's order, and the
JSON values, which every rank holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from allranks.arrays.base import Declared, Split
from allranks.arrays.grid import cell
from allranks.consistency.verdict import Covered
from allranks.digest import digest, show
from allranks.gate.ticket import describe_array, digest_of

VALUE = -1  # instead of an array's number


@dataclass(frozen=True, slots=True)
class Entry:
    """A cell of the ``array``-th array, or the JSON value at ``path``; ``what`` and ``part`` describe it."""

    array: int
    cell: int
    path: str
    what: str
    part: str


@dataclass(frozen=True, slots=True)
class Plan:
    """``descriptions`` must be equal on all ranks, by leaf; ``digest`` is theirs, ``placement`` that of who holds which
    leaf.

    ``groups`` are those of this rank, by a label made from their ranks. ``covered`` is for all arrays.
    """

    descriptions: Mapping[str, str]
    digest: str
    placement: str
    groups: Mapping[str, tuple[Entry, ...]]
    covered: tuple[Covered, ...]


def plan(
    declared: Sequence[Declared], values: Iterable[str], off_host: Sequence[bool], *, rank: int, size: int
) -> Plan:
    """Return the plan; ``off_host`` has for each array whether it is on a device, where digests are different."""
    everyone = _label(range(size))
    seen: dict[int, _Layout] = {}  # by identity: equal splits are one object
    descriptions: dict[str, str] = {}
    held: list[str] = []
    groups: dict[str, list[Entry]] = {}
    covered: list[Covered] = []
    for number, (one, off) in enumerate(zip(declared, off_host, strict=True)):
        layout = seen.get(id(one.split)) or seen.setdefault(id(one.split), _layout(one.split, everyone, rank=rank))
        what = describe_array(one.dtype, one.shape, (), kind=one.kind)
        pieces = describe_array(one.dtype, one.shape, one.split.cuts, kind=one.kind)
        descriptions[one.path] = f"{pieces}{' on a device' if off else ''}"
        held.append(layout.held)
        covered.append(Covered(one.path, len(one.split.holders), layout.fewest))
        for at, label in layout.mine.items():
            groups.setdefault(label, []).append(Entry(number, at, one.path, what, _part(one, at)))
    for path in values:
        descriptions[path] = "a value"
        groups.setdefault(everyone, []).append(Entry(VALUE, 0, path, "", ""))
    by_label = {label: tuple(entries) for label, entries in groups.items()}
    return Plan(descriptions, digest_of(descriptions), show(digest(*held)), by_label, tuple(covered))


@dataclass(frozen=True, slots=True)
class _Layout:
    """A split as one rank sees it.

    ``held`` is a digest of who holds what, "" if all ranks hold everything; ``mine`` is the group of each cell of this
    rank.
    """

    held: str
    mine: Mapping[int, str]
    fewest: int


def _layout(split: Split, everyone: str, *, rank: int) -> _Layout:
    labels = [_label(ranks) for ranks in split.holders]
    held = "" if labels == [everyone] else show(digest(*labels))
    mine = {at: labels[at] for at, ranks in enumerate(split.holders) if rank in ranks}
    return _Layout(held, mine, min(map(len, split.holders)))


def _label(ranks: Iterable[int]) -> str:
    return show(digest(",".join(map(str, ranks))))[:16]


def _part(one: Declared, number: int) -> str:
    if len(one.split.holders) == 1:
        return ""
    extent = cell(number, one.shape, one.split.cuts)
    return f"[{', '.join(f'{a}:{b}' for a, b in zip(extent.offset, extent.end, strict=True))}]"
