"""Compare the state of all ranks: one exchange if all is equal, and a second one to find out what differs.

Ranks that hold the same cells are a *group*; the ranks of a group with equal digests are a *party*. In the first
exchange each rank sends one digest for each of its groups (``claim_of_state``, ``StateClaim.root_digests``), as a part
of any exchange. ``groups_that_differ`` returns the groups whose digests differ. In the second exchange
(``find_differences``) one rank of each party of such a group sends all of its digests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from allranks.arrays.base import CellCopy, OpenTree, RankSplit
from allranks.consistency import vote
from allranks.consistency.claim import StateClaim, party_from_report
from allranks.consistency.digests import Copies
from allranks.consistency.plan import ComparedEntry, ComparisonPlan, plan_comparison
from allranks.consistency.verdict import Difference
from allranks.world.base import World

# The most parties of an odd group that report, the largest first; the most differences that are listed.
_MOST_PARTIES, _MOST_LISTED = 64, 64

_planned: WeakKeyDictionary[World, dict[str, tuple[object, ComparisonPlan]]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class FoundDifferences:
    """The differences between ranks: their number (``total``), and the ``first`` of them, each with its entry."""

    total: int
    first: tuple[tuple[ComparedEntry, Difference], ...]


def claim_of_state(tree: OpenTree, world: World, *, name: str, is_proof: bool = False) -> StateClaim:
    """Return the digests of everything that this rank holds of a state (a StateClaim).

    The plan is reused for the next state that has the same leaves and the same ``name``.
    """
    copies = [tree.copies_of_array(array) for array in range(len(tree.declared_arrays))]
    read = [_comparable_copies(one.split, of) for one, of in zip(tree.declared_arrays, copies, strict=True)]
    return StateClaim(tree, _comparison_plan(tree, copies, world, name), read, proof=is_proof)


def _comparable_copies(split: RankSplit, copies: tuple[CellCopy, ...]) -> tuple[CellCopy, ...]:
    """Return those copies for which another copy of the same cell exists, on this rank or another one."""
    if len(copies) == 1:
        return copies if len(split.holders[copies[0].cell]) > 1 else ()
    cells = [copy.cell for copy in copies]
    return tuple(copy for copy in copies if len(split.holders[copy.cell]) > 1 or cells.count(copy.cell) > 1)


def _comparison_plan(tree: OpenTree, copies: Copies, world: World, name: str) -> ComparisonPlan:
    off_host = tuple(bool(of) and not of[0].on_host for of in copies)
    key = tree.hash_key, tuple(tree.values), off_host
    last = _planned.setdefault(world, {})
    if name not in last or last[name][0] != key:
        last[name] = key, plan_comparison(tree.declared_arrays, tree.values, off_host, rank=world.rank, size=world.size)
    return last[name][1]


def groups_that_differ(roots_by_rank: Sequence[Mapping[str, Sequence[Any]]]) -> dict[str, list[list[int]]]:
    """Return the groups whose digests differ, by label; for each of them, its ranks divided into parties with equal
    digests.

    ``roots_by_rank``: the result of ``StateClaim.root_digests`` of every rank, in rank order.
    """
    by_label: defaultdict[str, dict[int, tuple[str, bool]]] = defaultdict(dict)
    for rank, roots in enumerate(roots_by_rank):
        for label, (root, inconsistent) in roots.items():
            by_label[label][rank] = root, inconsistent
    found = {label: vote.equal_ranks(roots) for label, roots in by_label.items()}
    return {label: parties for label, parties in found.items() if parties}


def find_differences(
    world: World,
    name: str,
    claim: StateClaim,
    differing_groups: Mapping[str, Sequence[Sequence[int]]],
    *,
    finds_all: bool = False,
) -> FoundDifferences:
    """Return the first differences, or all with ``finds_all``. **Every rank must call.**

    ``differing_groups``: the result of ``groups_that_differ``.
    """
    heard = {label: parties[:_MOST_PARTIES] for label, parties in differing_groups.items()}
    told = {
        label: claim.describe_group(label, with_names=world.rank == parties[0][0])
        for label, parties in heard.items()
        if any(world.rank == party[0] for party in parties)
    }
    most = None if finds_all else _MOST_LISTED
    silent = {label: sum(map(len, parties[_MOST_PARTIES:])) for label, parties in differing_groups.items()}
    decide = partial(_count_differing, heard, silent, width=claim.width, most=most)
    total, first = world.exchange("verify leaves", name, told, decide=decide)
    return FoundDifferences(total, tuple(_difference_from_json(heard[label], *one) for label, *one in first))


def _count_differing(
    heard: Mapping[str, Sequence[Sequence[int]]],
    silent: Mapping[str, int],
    told: Sequence[Any],
    *,
    width: int,
    most: int | None,
) -> list[Any]:
    """Return the number of entries that differ, and the first of them in the tree's order, as JSON.

    Ranks are given by the number of their party.
    """
    found = []
    for label, parties in heard.items():
        says = [told[party[0]][label] for party in parties]
        of = [party_from_report(party, its) for party, its in zip(parties, says, strict=True)]
        for one in vote.count_votes(of, digest_width=width, absent_ranks=silent[label]):
            groups = [_group_as_json(group, parties) for group in one.groups]
            values = [says[numbers[0]][2].get(str(one.entry), "") if numbers else "" for numbers, _ in groups]
            found.append([label, says[0][3][one.entry], groups, one.decided, values])
    found.sort(key=lambda one: one[1][:2])
    return [len(found), found[:most]]


def _group_as_json(group: vote.CopyGroup, parties: Sequence[Sequence[int]]) -> tuple[list[int], list[tuple[int, str]]]:
    members = set(group.ranks)
    return [number for number, party in enumerate(parties) if party[0] in members], list(group.devices)


def _difference_from_json(
    parties: Sequence[Sequence[int]],
    entry: Sequence[Any],
    groups: Sequence[Any],
    decided: bool,
    values: Sequence[str],
) -> tuple[ComparedEntry, Difference]:
    of = ComparedEntry(*entry)
    read = tuple(
        vote.CopyGroup(
            tuple(sorted(rank for number in numbers for rank in parties[number])),
            tuple((rank, device) for rank, device in devices),
        )
        for numbers, devices in groups
    )
    return of, Difference(of.path, of.what, of.part, read, decided, values=tuple(values) if any(values) else ())
