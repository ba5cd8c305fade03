"""What each rank believes it is doing together with the others, and the comparison of N such beliefs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from allranks.world.claims import by_claim, minority, who_says_what


@dataclass(frozen=True, slots=True, order=True)
class Ticket:
    """An exchange as one rank enters it: ``barrier 'epoch'``, called from ``where`` (which may differ over ranks)."""

    op: str
    name: str
    where: str

    def __str__(self) -> str:
        return f"{self.op} {self.name!r}" + (f" ({self.where})" if self.where else "")

    def agrees_with(self, other: Ticket) -> bool:
        """Say whether two ranks mean the same exchange."""
        return (self.op, self.name) == (other.op, other.name)


def difference(tickets: Mapping[Ticket, Iterable[int]]) -> tuple[str, tuple[int, ...]] | None:
    """Compare the ranks' tickets: None if all agree, else who is where, and the ranks of the minority.

    >>> difference({Ticket("barrier", "a", ""): [0, 2], Ticket("gather", "b", ""): [1]})
    ("ranks 0, 2: barrier 'a'; rank 1: gather 'b'", (1,))
    """
    first = next(iter(tickets))
    if all(first.agrees_with(ticket) for ticket in tickets):
        return None
    groups = by_claim((rank, (ticket.op, ticket.name)) for ticket, ranks in tickets.items() for rank in ranks)
    return who_says_what((str(t), sorted(ranks)) for t, ranks in tickets.items()), minority(groups.values())
