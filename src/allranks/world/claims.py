"""Compare what N ranks claim: tickets of calls, values; who differs, in words, and the ranks in the minority. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from allranks.errors import Mismatch, name_ranks

T = TypeVar("T", bound=Hashable)


def by_claim(claims: Iterable[tuple[int, T]]) -> dict[T, list[int]]:
    """Return the ranks of each claim, in the order in which claims and ranks come: ``by_claim(enumerate(values))``."""
    groups: dict[T, list[int]] = {}
    for rank, claim in claims:
        groups.setdefault(claim, []).append(rank)
    return groups


def describe_groups(groups: Iterable[tuple[str, Iterable[int]]]) -> str:
    """Return ``ranks 0, 2: this; rank 1: that``, the largest group first."""
    listed = [(words, sorted(ranks)) for words, ranks in groups]
    listed.sort(key=lambda group: (-len(group[1]), group[1]))
    return "; ".join(f"{name_ranks(ranks)}: {words}" for words, ranks in listed)


def minority(groups: Iterable[Iterable[int]]) -> tuple[int, ...]:
    """Return the ranks outside the largest group; all ranks where two groups are the largest."""
    listed = sorted((sorted(ranks) for ranks in groups), key=len, reverse=True)
    tied = len(listed) > 1 and len(listed[0]) == len(listed[1])
    return tuple(sorted(rank for group in (listed if tied else listed[1:]) for rank in group))


def mismatch(what: str, groups: Mapping[str, Iterable[int]], *, remedy: str = "") -> Mismatch:
    """Return the error for ranks that differ: ``what`` differs, who has what, and the ranks in the minority."""
    return Mismatch(f"{what}: {describe_groups(groups.items())}.", ranks=minority(groups.values()), remedy=remedy)


@dataclass(frozen=True, slots=True, order=True)
class Ticket:
    """An exchange as one rank enters it: ``barrier 'epoch'``, called from ``where`` (which may differ over ranks)."""

    op: str
    name: str
    where: str

    def __str__(self) -> str:
        return f"{self.op} {self.name!r}" + (f" ({self.where})" if self.where else "")

    def agrees_with(self, other: Ticket) -> bool:
        """Return whether two ranks mean the same exchange."""
        return (self.op, self.name) == (other.op, other.name)


def difference(tickets: Mapping[Ticket, Iterable[int]]) -> tuple[str, tuple[int, ...]] | None:
    """Compare the ranks' tickets; return None if all agree, else who is where, and the ranks of the minority.

    >>> difference({Ticket("barrier", "a", ""): [0, 2], Ticket("gather", "b", ""): [1]})
    ("ranks 0, 2: barrier 'a'; rank 1: gather 'b'", (1,))
    """
    first = next(iter(tickets))
    if all(first.agrees_with(ticket) for ticket in tickets):
        return None
    groups = by_claim((rank, (ticket.op, ticket.name)) for ticket, ranks in tickets.items() for rank in ranks)
    return describe_groups((str(t), sorted(ranks)) for t, ranks in tickets.items()), minority(groups.values())
