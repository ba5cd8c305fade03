"""What of a state is compared with whom: follows from what all ranks know of it, and is the same at every step. Pure.

Ranks that hold the same cells of the same leaves are a group; its entries are these cells, in the tree's order, and the
JSON values, which every rank holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from allranks.arrays.base import Declared, Split
from allranks.arrays.grid import cell
from allranks.consistency.verdict import Covered
from allranks.digest import digest, show
from allranks.gate.ticket import array_in_words, digest_of

VALUE = -1  # in the place of an array's number


@dataclass(frozen=True, slots=True)
class Entry:
    """A cell of the ``array``-th array, or the JSON value at ``path``; ``what`` and ``part`` say it in words."""

    array: int
    cell: int
    path: str
    what: str
    part: str


@dataclass(frozen=True, slots=True)
class Plan:
    """``words`` is what must be said alike of each leaf by all ranks, and ``digest`` a digest of it.

    ``groups`` are those that this rank is in, by a label that follows from their ranks. ``covered`` is of all arrays.
    """

    words: Mapping[str, str]
    digest: str
    groups: Mapping[str, tuple[Entry, ...]]
    covered: tuple[Covered, ...]


def plan(
    declared: Sequence[Declared], values: Iterable[str], off_host: Sequence[bool], *, rank: int, size: int
) -> Plan:
    """Return the plan; ``off_host`` says of each array whether it lies on a device, where other digests are made."""
    everyone = _label(range(size))
    labels: dict[Split, list[str]] = {}
    words: dict[str, str] = {}
    groups: dict[str, list[Entry]] = {}
    for number, (one, off) in enumerate(zip(declared, off_host, strict=True)):
        split = one.split
        of_cells = labels.get(split) or labels.setdefault(split, [_label(ranks) for ranks in split.holders])
        what = array_in_words(one.dtype, one.shape, (), kind=one.kind)
        layout = f" held as {show(digest(*of_cells))[:8]}" if of_cells != [everyone] else ""
        pieces = array_in_words(one.dtype, one.shape, split.cuts, kind=one.kind)
        words[one.path] = f"{pieces}{layout}{' on a device' if off else ''}"
        for at, holders in enumerate(split.holders):
            if rank in holders:
                entry = Entry(number, at, one.path, what, _part(one, at))
                groups.setdefault(of_cells[at], []).append(entry)
    for path in values:
        words[path] = "a value"
        groups.setdefault(everyone, []).append(Entry(VALUE, 0, path, "", ""))
    covered = tuple(Covered(d.path, len(d.split.holders), min(map(len, d.split.holders))) for d in declared)
    return Plan(words, digest_of(words), {label: tuple(entries) for label, entries in groups.items()}, covered)


def _label(ranks: Iterable[int]) -> str:
    return show(digest(",".join(map(str, ranks))))[:16]


def _part(one: Declared, number: int) -> str:
    if len(one.split.holders) == 1:
        return ""
    extent = cell(number, one.shape, one.split.cuts)
    return f"[{', '.join(f'{a}:{b}' for a, b in zip(extent.offset, extent.end, strict=True))}]"
