"""Detect that one rank waits in a call of a group while another waits in an exchange of the world, for ever.

A call belongs to a group; an exchange of the world (world/program_exchanges.py) belongs to all ranks. The training
thread makes both, one at a time. Each rank counts the exchanges of the world that it entered, its position in each
group (calls.py) and the exchanges of each group.

Ranks that make the same calls and exchanges in one order, each at its own speed, never show one of these:

1. A rank is in an exchange of a group that another rank of the group has not entered. The other rank is in an exchange
   of the world that the first has not entered. (Whichever is earlier in the order, one of the ranks has left it out.)
2. A rank has started a call of a group that another rank of the group has not started. The other rank is in an exchange
   of the world that the first has not entered. (A rank in an exchange has started all calls before it; a rank that has
   not entered it has started none after it.)

If two ranks diverge, so that one waits in an exchange of the world and the other in a call, they show one of the two.
They show the first if the call was not predicted, the second if it was. The state remains, since each rank waits for
the other. So one message is enough: a rank that has waited for a moment sends its positions to the ranks for which it
waits. These ranks compare the positions with their own. Nothing is compared if no rank waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupQuery:
    """What a group's waiting ranks report: their earliest positions, by group, and how many exchanges they have
    entered.
    """

    places: Mapping[str, int]
    world_exchanges: int


def merge_queries(queries: Iterable[tuple[Mapping[str, int], int]]) -> GroupQuery | None:
    """Return the queries of one exchange merged into one; None if there are no queries."""
    places: dict[str, int] = {}
    most = -1
    for there, world_exchanges in queries:
        most = max(most, world_exchanges)
        for name, place in there.items():
            places[name] = min(place, places.get(name, place))
    return GroupQuery(places, most) if places else None


def is_in_later_exchange(query: GroupQuery, current_exchange: int) -> bool:
    """Return whether a rank in the world's exchange ``current_exchange`` (0: none) cannot enter the exchange of a
    query.
    """
    return current_exchange > query.world_exchanges


def is_past_call(position: int, reported_position: int) -> bool:
    """Return whether a rank at ``position`` cannot enter an exchange where a rank reported its place
    ``reported_position``.
    """
    return position > reported_position
