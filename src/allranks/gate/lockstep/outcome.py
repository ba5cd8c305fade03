"""Compare what the ranks of a group report about their next call. The outcomes are:

- ``AgreedCall``: all ranks have the same position, call and loops. They make the call.
- ``GoToExchange``: a rank is in an exchange of the world instead. All ranks go to that exchange.
- ``CallDivergence``: positions or calls differ. The ranks send each other their calls, and raise.
- a Mismatch, raised at once: loops, or calls in other groups, differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from allranks.errors import Mismatch
from allranks.gate.lockstep import steps
from allranks.gate.lockstep.calls import LEFT_OUT, ONE_ORDER
from allranks.world.claims import by_claim, describe_groups, minority_ranks, mismatch_of_ranks
from allranks.world.codec import Value

_REPLICATED = (
    "JAX takes numbers, NumPy arrays and arrays of one process for equal on all ranks: give all the same "
    '(world.broadcast(value)), or make an array in parts of it. Where it is meant: lockstep(check="calls"), without '
    "--guard."
)
_SORTED = "A set, or a dict that was filled in another order: go through sorted(...), alike on all ranks."


# Predicted calls are compared now and then all the same, for values and orders that no call shows. At most this share
# of the time goes into that, and at least so many seconds and calls lie between two such agreements.
_SHARE, _SECONDS, _CALLS = 0.001, 5.0, 64
NEVER = 1 << 60


class CallRate(NamedTuple):
    """How fast one rank makes calls: calls and seconds since the last agreement, and the seconds that the agreement
    took.
    """

    seconds: float
    calls: float
    query: float


@dataclass(frozen=True, slots=True)
class RankReport:
    """What a rank reports to its process group about its next call.

    - ``place``: its position in the call sequence (calls.py).
    - ``form``: the digest of its call; "" if the rank only answers.
    - ``elsewhere``: its positions in other groups, with the ranks of these groups.
    - ``world_exchange``: the exchange of the world in which the rank is instead (0: none).
    - ``loops``: how far its loops have advanced since all ranks agreed, their counts and strides (steps.py).
    - ``labels``: the elements at which its loops are.
    - ``values``: the arguments of the call.
    - ``rate``: how fast the rank makes calls.
    """

    place: int
    form: str
    elsewhere: Mapping[str, Any]
    world_exchange: int
    loops: Mapping[str, Sequence[int | None]]
    labels: Sequence[Sequence[str]]
    values: Sequence[Sequence[str]] = ()
    rate: Sequence[float] = (0.0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class AgreedCall:
    """The outcome if all ranks are about to make the same call.

    ``unequal`` are the loops whose counts differ over ranks. ``calls`` is how many calls the ranks make until the next
    check.
    """

    unequal: Sequence[str]
    calls: int

    def to_value(self) -> Value:
        return {"unequal": list(self.unequal), "calls": self.calls}


@dataclass(frozen=True, slots=True)
class GoToExchange:
    """The outcome if other ranks wait in an exchange of the world, which all ranks of the group must enter first."""

    world_exchange: int

    def to_value(self) -> Value:
        return self.world_exchange


@dataclass(frozen=True, slots=True)
class CallDivergence:
    """The outcome if the ranks' calls with this number differ.

    Each of ``groups`` holds the ranks with equal calls, as positions in the group's list of members.
    """

    number: int
    groups: Sequence[Sequence[int]]

    def to_value(self) -> Value:
        return [self.number, [list(group) for group in self.groups]]


Outcome = AgreedCall | GoToExchange | CallDivergence


def outcome_of(value: Value) -> Outcome:
    """Decode an Outcome from the result of its method ``to_value()``."""
    if isinstance(value, dict):
        return AgreedCall(**value)
    return GoToExchange(value) if isinstance(value, int) else CallDivergence(*value)


def judge_calls(reports: Sequence[RankReport], members: Sequence[int]) -> Outcome:
    """Compare the reports of the ranks of a group, and return the outcome.

    Raises Mismatch if only loops, values or the calls of other groups differ.
    """
    if world_exchange := max(one.world_exchange for one in reports):
        return GoToExchange(world_exchange)
    groups = by_claim((position, (one.place, one.form)) for position, one in enumerate(reports))
    if len(groups) > 1:
        return CallDivergence(min(place for place, _ in groups) // 2 + 1, list(groups.values()))
    _compare_loops(reports, members)
    call = f"call {reports[0].place // 2 + 1}"
    _compare_labels([one.labels for one in reports], members, f"{call} is made for different elements", _SORTED)
    _compare_labels([one.values for one in reports], members, f"{call} is given different values:", _REPLICATED)
    _compare_ends([one.elsewhere for one in reports])
    return AgreedCall(
        steps.unequal_loops([one.loops for one in reports]),
        calls_until_value_check([CallRate(*one.rate) for one in reports]),
    )


def _compare_loops(reports: Sequence[RankReport], members: Sequence[int]) -> None:
    found = steps.compare_advances([(rank, one.loops) for rank, one in zip(members, reports, strict=True)])
    if found is not None:
        words, odd = found
        number = reports[0].place // 2 + 1
        raise Mismatch(
            f"the ranks make call {number} at different steps of their loops, {words}.", ranks=odd, remedy=LEFT_OUT
        )


def _compare_labels(
    reported: Sequence[Sequence[Sequence[str]]], members: Sequence[int], what: str, remedy: str
) -> None:
    """Raise Mismatch if the labels that the ranks report differ."""
    labels = [(rank, [steps.LoopElement(*label) for label in one]) for rank, one in zip(members, reported, strict=True)]
    if found := steps.compare_labels(labels):
        name, ranks = found
        raise mismatch_of_ranks(f"{what} {name}", ranks, remedy=remedy)


def _compare_ends(places: Sequence[Mapping[str, Any]]) -> None:
    """Raise Mismatch if ranks leave the block after different numbers of calls with one of their groups."""
    groups = {name: members for reports in places for name, (_, members) in reports.items()}
    for name, members in groups.items():
        made = by_claim((rank, places[rank].get(name, (0,))[0] // 2) for rank in members)
        if len(made) > 1:
            reported = describe_groups((f"{count} calls", ranks) for count, ranks in made.items())
            raise Mismatch(
                f"the ranks leave after different numbers of calls of {name}: {reported}.",
                ranks=minority_ranks(made.values()),
                remedy=ONE_ORDER,
            )


def calls_until_value_check(rates: Sequence[CallRate]) -> int:
    """Return how many calls the ranks make before they compare values again."""
    # The rank that came last waited least: its time is what an agreement costs.
    seconds = max(_SECONDS, min(rate.query for rate in rates) / _SHARE)
    a_call = max(rate.seconds / max(rate.calls, 1) for rate in rates)
    return max(_CALLS, int(seconds / max(a_call, 1e-6)))
