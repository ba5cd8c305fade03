"""When ranks that go on as foretold ask each other after all: so rarely that it costs next to nothing.

What no call shows (values that all ranks should give to a call alike, the order in a loop that turned later) can be
compared in questions alone. So the ranks agree, in each, on the call before which they ask next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# So much of the time goes into these questions at most, and so many seconds and calls lie between two of them at least.
_SHARE, _SECONDS, _CALLS = 0.001, 5.0, 64
NEVER = 1 << 60


class Pace(NamedTuple):
    """How fast one rank makes calls: the seconds from the last question to this one, the calls since, and how long the
    last one took, with the time that the rank waited."""

    seconds: float
    calls: float
    question: float


def calls_until_next(paces: Sequence[Pace]) -> int:
    """Return how many calls the ranks make before they ask each other again."""
    # Who came last to a question waited least: that is what it takes.
    seconds = max(_SECONDS, min(pace.question for pace in paces) / _SHARE)
    a_call = max(pace.seconds / max(pace.calls, 1) for pace in paces)
    return max(_CALLS, int(seconds / max(a_call, 1e-6)))
