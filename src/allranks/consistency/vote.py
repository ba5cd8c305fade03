"""Find out, from digests, which copies of the same values differ, and which ranks are in the minority.

A cell of an array is held by several ranks, and by several devices of a rank. Every rank has one vote, which its copies
share. The value with more than half of the votes has the majority. Ranks with another value are in the minority. If no
value has more than half, it is a tie, and only the groups of equal copies are known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from allranks.errors import name_ranks


@dataclass(frozen=True, slots=True)
class EqualRanks:
    """Ranks with equal digests of a group of entries.

    ``digests``: one digest for each entry, of equal width, concatenated.
    ``inconsistent``: for a rank whose own devices disagree, the digest on each device, by entry. Such a rank is a party
    of its own.
    """

    ranks: tuple[int, ...]
    digests: bytes
    inconsistent: Mapping[int, Mapping[str, bytes]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CopyGroup:
    """Copies that are equal: all copies of ``ranks``, and single copies on other ranks, as (rank, device)."""

    ranks: tuple[int, ...]
    devices: tuple[tuple[int, str], ...] = ()

    @property
    def members(self) -> frozenset[int]:
        """Every rank that has a copy in this group."""
        return frozenset(self.ranks) | {rank for rank, _ in self.devices}

    def __str__(self) -> str:
        of: defaultdict[int, list[str]] = defaultdict(list)
        for rank, device in self.devices:
            of[rank].append(device)
        told = [name_ranks(self.ranks)] if self.ranks else []
        return ", ".join([*told, *(f"rank {rank} ({', '.join(devices)})" for rank, devices in of.items())])


@dataclass(frozen=True, slots=True)
class VoteResult:
    """The result of the vote on one entry.

    ``groups``: the groups of equal copies, most votes first. ``decided``: whether the first has more than half of the
    votes.
    """

    entry: int
    groups: tuple[CopyGroup, ...]
    decided: bool


def equal_ranks(reports: Mapping[int, tuple[str, bool]]) -> list[list[int]] | None:
    """Return the parties of a group of ranks, the largest first; None if all digests are equal.

    ``reports``: for each rank, its digest of the group, and whether its own devices disagree.
    """
    by_root: defaultdict[str, list[int]] = defaultdict(list)
    for rank, (root, _) in sorted(reports.items()):
        by_root[root].append(rank)
    if len(by_root) == 1 and not any(inconsistent for _, inconsistent in reports.values()):
        return None
    return sorted(by_root.values(), key=len, reverse=True)


def count_votes(digests: Sequence[EqualRanks], *, digest_width: int, absent_ranks: int = 0) -> Iterator[VoteResult]:
    """Yield the result of the vote for each entry whose copies differ, in order.

    ``digest_width``: the bytes of a digest. ``absent_ranks``: the number of ranks that have a vote, but are in no
    party. A majority must hold whatever the values of these ranks are.
    """
    first = digests[0].digests
    for entry, at in enumerate(range(0, len(first), digest_width)):
        value = first[at : at + digest_width]
        if any(entry in party.inconsistent or party.digests[at : at + digest_width] != value for party in digests):
            yield _count_entry(entry, digests, slice(at, at + digest_width), absent_ranks)


def _count_entry(entry: int, of: Sequence[EqualRanks], at: slice, silent: int) -> VoteResult:
    ranks: defaultdict[bytes, list[int]] = defaultdict(list)
    devices: defaultdict[bytes, list[tuple[int, str]]] = defaultdict(list)
    votes: defaultdict[bytes, Fraction] = defaultdict(Fraction)
    for party in of:
        inconsistent = party.inconsistent.get(entry)
        if inconsistent is None:
            ranks[party.digests[at]] += party.ranks
            votes[party.digests[at]] += len(party.ranks)
            continue
        for device, value in inconsistent.items():
            devices[value] += ((rank, device) for rank in party.ranks)
            votes[value] += Fraction(len(party.ranks), len(inconsistent))
    order = sorted(votes, key=lambda value: (-votes[value], min([*ranks[value], *(r for r, _ in devices[value])])))
    groups = tuple(CopyGroup(tuple(sorted(ranks[value])), tuple(sorted(devices[value]))) for value in order)
    return VoteResult(entry, groups, 2 * votes[order[0]] > sum(votes.values()) + silent)
