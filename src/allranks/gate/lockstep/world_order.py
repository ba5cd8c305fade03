"""Calls and meetings have one order on all ranks: how two ranks are told apart of which one calls and the other meets.

A call is of a group, a meeting (world/program_exchanges.py) of all ranks; the thread that trains makes both, one at a
time. Each rank counts its own: the meetings that it has come to, its place in each group (schedule.py), the exchanges
of each.

Theory. Ranks that make the same calls and meetings in one order, each at its own speed, never show one of these:

1. A rank asks in a group, in an exchange to which another one of the group has not come, and that one is in a meeting
   to which the first has not come. (Whichever of the two is earlier in the order, one of the ranks has left it out.)
2. A rank has begun a call of a group which another one of the group has not begun, and that one is in a meeting to
   which the first has not come. (Who is in a meeting has begun all calls before it; who has not come, none after it.)

Where ranks part so that one waits for the other in a meeting, and is waited for in a call, one of the two shows: the
first if the call was not foretold, the second if it was. What is seen stays, since each waits for the other; so one
message is enough, from a rank that has waited for a moment to those that it waits for, who compare it with what they
know of themselves. Nothing is compared where nobody waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Question:
    """What ranks tell that ask in a group: the first places, by group, where they do, and the meetings they came to."""

    places: Mapping[str, int]
    meetings: int


def asked(questions: Iterable[tuple[Mapping[str, int], int]]) -> Question | None:
    """Return the questions of one exchange as one; None if there is none."""
    places: dict[str, int] = {}
    most = -1
    for there, meetings in questions:
        most = max(most, meetings)
        for name, place in there.items():
            places[name] = min(place, places.get(name, place))
    return Question(places, most) if places else None


def meets_instead(question: Question, current: int) -> bool:
    """Say whether a rank whose training thread is in the meeting ``current`` (0: in none), and has not come to the
    exchange, cannot come to it."""
    return current > question.meetings


def calls_instead(place: int, told: int) -> bool:
    """Say whether a rank that has not come to a meeting, and is at ``place`` in a group, cannot come to it: a rank of
    the group is there, and told its place."""
    return place > told
