"""Detect that one rank is in a call of a group while another is in an exchange of the world: an order that differs.

A call is of a group, an exchange of the world (world/program_exchanges.py) is of all ranks; the training thread makes
both, one at a time. Each rank counts the exchanges of the world that it entered, its place in each group (calls.py) and
the exchanges of each group.

Theory. Ranks that make the same calls and exchanges in one order, each at its own speed, never show one of these:

1. A rank is in an exchange of a group that another rank of the group has not entered, and that rank is in an exchange
   of the world that the first has not entered. (Whichever is earlier in the order, one of the ranks has left it out.)
2. A rank has started a call of a group that another rank of the group has not started, and that rank is in an exchange
   of the world that the first has not entered. (A rank in an exchange has started all calls before it; a rank that has
   not entered it has started none after it.)

Where two ranks diverge, so that one waits in an exchange of the world and the other in a call, one of the two shows:
the first if the call was not predicted, the second if it was. Neither goes away, since each rank waits for the other.
So one message is enough: a rank that has waited for a moment sends its places to those for which it waits, and they
compare them with their own. Nothing is compared where no rank waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Query:
    """What ranks report that wait in a group: their first places, by group, and how many exchanges they entered."""

    places: Mapping[str, int]
    world_exchanges: int


def merge_queries(queries: Iterable[tuple[Mapping[str, int], int]]) -> Query | None:
    """Return the queries of one exchange merged into one; None if there is none."""
    places: dict[str, int] = {}
    most = -1
    for there, world_exchanges in queries:
        most = max(most, world_exchanges)
        for name, place in there.items():
            places[name] = min(place, places.get(name, place))
    return Query(places, most) if places else None


def is_in_later_exchange(query: Query, current: int) -> bool:
    """Return whether a rank in the world's exchange ``current`` (0: none) cannot enter the exchange of a query."""
    return current > query.world_exchanges


def is_past_call(place: int, reported: int) -> bool:
    """Return whether a rank at ``place`` in a group cannot enter an exchange where a rank ``reported`` its place."""
    return place > reported
