"""Compare what N ranks claim (their values, or the tickets of their calls) and find the ranks in the minority."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from allranks.errors import Mismatch, name_ranks

T = TypeVar("T", bound=Hashable)


def by_claim(claims: Iterable[tuple[int, T]]) -> dict[T, list[int]]:
    """Group ranks by what they claim, e.g. ``by_claim(enumerate(values))``. Return the ranks of each distinct claim.

    The order of ``claims`` is kept, both for the groups and for the ranks of a group.
    """
    groups: dict[T, list[int]] = {}
    for rank, claim in claims:
        groups.setdefault(claim, []).append(rank)
    return groups


def describe_groups(groups: Iterable[tuple[str, Iterable[int]]]) -> str:
    """Return a text that lists groups of ranks, the largest first: ``ranks 0, 2: this; rank 1: that``."""
    listed = [(words, sorted(ranks)) for words, ranks in groups]
    listed.sort(key=lambda group: (-len(group[1]), group[1]))
    return "; ".join(f"{name_ranks(ranks)}: {words}" for words, ranks in listed)


def minority_ranks(groups: Iterable[Iterable[int]]) -> tuple[int, ...]:
    """Return the ranks outside the largest group. If two groups are equally large, return all ranks."""
    listed = sorted((sorted(ranks) for ranks in groups), key=len, reverse=True)
    tied = len(listed) > 1 and len(listed[0]) == len(listed[1])
    return tuple(sorted(rank for group in (listed if tied else listed[1:]) for rank in group))


def mismatch_of_ranks(what: str, groups: Mapping[str, Iterable[int]], *, remedy: str = "") -> Mismatch:
    """Return the Mismatch error for ranks that differ.

    ``what`` says what differs. The message lists the ranks of each group, and the error has the ranks in the minority.
    """
    return Mismatch(f"{what}: {describe_groups(groups.items())}.", ranks=minority_ranks(groups.values()), remedy=remedy)


@dataclass(frozen=True, slots=True, order=True)
class Ticket:
    """What one rank says about the exchange that it enters, e.g. ``barrier 'epoch'``.

    ``where`` is the line of the call. It may differ between ranks.
    """

    op: str
    name: str
    where: str

    def __str__(self) -> str:
        return f"{self.op} {self.name!r}" + (f" ({self.where})" if self.where else "")

    def agrees_with(self, other: Ticket) -> bool:
        """Return whether two tickets are for the same exchange: equal ``op`` and ``name``."""
        return (self.op, self.name) == (other.op, other.name)


def first_difference(tickets: Mapping[Ticket, Iterable[int]]) -> tuple[str, tuple[int, ...]] | None:
    """Compare the ranks' tickets.

    Return None if all agree, else a text with each rank's ticket, and the minority ranks.

    >>> difference({Ticket("barrier", "a", ""): [0, 2], Ticket("gather", "b", ""): [1]})
    ("ranks 0, 2: barrier 'a'; rank 1: gather 'b'", (1,))
    """
    first = next(iter(tickets))
    if all(first.agrees_with(ticket) for ticket in tickets):
        return None
    groups = by_claim((rank, (ticket.op, ticket.name)) for ticket, ranks in tickets.items() for rank in ranks)
    return describe_groups((str(t), sorted(ranks)) for t, ranks in tickets.items()), minority_ranks(groups.values())
