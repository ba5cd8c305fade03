"""What becomes of a question: the ranks of a group agree, differ, or have to come to a meeting where others wait.

all ranks at one place, with one call, loops alike   Agreed     they make the call
one is in a meeting instead                          Elsewhere  all who ask come to that meeting
places or calls differ                               Different  they tell each other what they do, and raise
loops, or calls in other groups, differ              a Mismatch, raised at once
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allranks.errors import Mismatch
from allranks.gate.lockstep import steps
from allranks.gate.lockstep.pace import Pace, calls_until_next
from allranks.gate.lockstep.schedule import LEFT_OUT, ONE_ORDER
from allranks.world.claims import by_claim, minority, mismatch, who_says_what
from allranks.world.codec import Value

_REPLICATED = (
    "JAX takes numbers, NumPy arrays and arrays of one process for equal on all ranks: give all the same "
    '(world.broadcast(value)), or make an array in parts of it. Where it is meant: lockstep(check="calls"), without '
    "--guard."
)
_SORTED = "A set, or a dict that was filled in another order: go through sorted(...), alike on all ranks."


@dataclass(frozen=True, slots=True)
class Said:
    """What a rank brings: its place (schedule.py), the digest of its call ("" if it only answers), its places in other
    groups with their ranks, the meeting that it is in instead (0: none), by how much its loops have gone on since all
    ranks agreed, how far they are and their strides (steps.py), the elements that loops are at, the values that the
    call is given, and how fast it makes calls (pace.py)."""

    place: int
    form: str
    elsewhere: Mapping[str, Any]
    meeting: int
    loops: Mapping[str, Sequence[int | None]]
    labels: Sequence[Sequence[str]]
    values: Sequence[Sequence[str]] = ()
    pace: Sequence[float] = (0.0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Agreed:
    """All ranks are about to make the same call; ``unequal`` are the loops that are not equally far on all of them,
    ``calls`` how many calls they make before they ask again."""

    unequal: Sequence[str]
    calls: int

    def value(self) -> Value:
        return {"unequal": list(self.unequal), "calls": self.calls}


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """All ranks have to come to this meeting, where others wait."""

    meeting: int

    def value(self) -> Value:
        return self.meeting


@dataclass(frozen=True, slots=True)
class Different:
    """The calls of this number differ; ``groups`` agree among themselves, by position in the group."""

    number: int
    groups: Sequence[Sequence[int]]

    def value(self) -> Value:
        return [self.number, [list(group) for group in self.groups]]


Outcome = Agreed | Elsewhere | Different


def outcome_of(value: Value) -> Outcome:
    """Return the outcome whose ``value()`` travelled."""
    if isinstance(value, dict):
        return Agreed(**value)
    return Elsewhere(value) if isinstance(value, int) else Different(*value)


def compare(said: Sequence[Said], members: Sequence[int]) -> Outcome:
    """Compare what the ranks of a group brought. Raises Mismatch where only loops or calls in other groups differ."""
    if meeting := max(one.meeting for one in said):
        return Elsewhere(meeting)
    groups = by_claim((position, (one.place, one.form)) for position, one in enumerate(said))
    if len(groups) > 1:
        return Different(min(place for place, _ in groups) // 2 + 1, list(groups.values()))
    _compare_loops(said, members)
    call = f"call {said[0].place // 2 + 1}"
    _compare_told([one.labels for one in said], members, f"{call} is made for different elements", _SORTED)
    _compare_told([one.values for one in said], members, f"{call} is given different values:", _REPLICATED)
    _compare_ends([one.elsewhere for one in said])
    return Agreed(steps.unequal([one.loops for one in said]), calls_until_next([Pace(*one.pace) for one in said]))


def _compare_loops(said: Sequence[Said], members: Sequence[int]) -> None:
    found = steps.compare([(rank, one.loops) for rank, one in zip(members, said, strict=True)])
    if found is not None:
        words, odd = found
        number = said[0].place // 2 + 1
        raise Mismatch(
            f"call {number} comes at different steps since all ranks agreed, {words}.", ranks=odd, remedy=LEFT_OUT
        )


def _compare_told(told: Sequence[Sequence[Sequence[str]]], members: Sequence[int], what: str, remedy: str) -> None:
    """Raise Mismatch if the labels that each rank has brought are not alike."""
    labels = [(rank, [steps.Label(*label) for label in one]) for rank, one in zip(members, told, strict=True)]
    if found := steps.compare_labels(labels):
        name, ranks = found
        raise mismatch(f"{what} {name}", ranks, remedy=remedy)


def _compare_ends(places: Sequence[Mapping[str, Any]]) -> None:
    """Raise Mismatch if ranks leave that have not made equally many calls with one of their groups."""
    groups = {name: members for said in places for name, (_, members) in said.items()}
    for name, members in groups.items():
        made = by_claim((rank, places[rank].get(name, (0,))[0] // 2) for rank in members)
        if len(made) > 1:
            told = who_says_what((f"{count} calls", ranks) for count, ranks in made.items())
            raise Mismatch(
                f"the ranks leave after different numbers of calls of {name}: {told}.",
                ranks=minority(made.values()),
                remedy=ONE_ORDER,
            )
