"""Find ranks that are slower than their peers, from how long each rank is busy between two waits. No I/O.

All ranks take equally long for a step. A slow rank is *busy* longer and *waits* less, and its peers wait for it. Busy
time can be compared without a common clock. The median of many short measurements tells a slow rank from a rank that
paused once (garbage collection, a save). The spread of the measurements tells how certain that is.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from allranks.hang.heartbeat import Heartbeat

WINDOW = 30  # steps
SLOW = 1.10  # times the median of all ranks
# A difference that is smaller than so many of its standard errors may be chance.
_SURE = 5.0
_FEWEST_LOOKS = 5
# From the median distance to the median to a standard error of the median, for a normal distribution.
_ERROR = 1.4826 * 1.2533


class BusyTime:
    """Measure for how many seconds one rank is busy in a step, over the last ``WINDOW`` steps."""

    def __init__(self) -> None:
        self._looks: deque[tuple[int, float]] = deque()
        self._steps = 0
        self._before: tuple[float, int, float] | None = None

    def record(self, now: float, waits: int, waited: float) -> None:
        """Record how many waits this rank has entered until ``now``, and how many seconds it has spent in them."""
        if self._before is None:
            self._before = now, waits, waited
            return
        began, entered, in_waits = self._before
        if (steps := waits - entered) == 0:
            return
        self._before = now, waits, waited
        self._looks.append((steps, (now - began - (waited - in_waits)) / steps))
        self._steps += steps
        while self._steps - self._looks[0][0] >= WINDOW and len(self._looks) > _FEWEST_LOOKS:
            self._steps -= self._looks.popleft()[0]

    def measure(self) -> tuple[float, float]:
        """Return the busy seconds a step and their standard error; zeros before there are enough steps."""
        if self._steps < WINDOW or len(self._looks) < _FEWEST_LOOKS:
            return 0.0, 0.0
        busy = [seconds for _, seconds in self._looks]
        middle = statistics.median(busy)
        spread = statistics.median(abs(seconds - middle) for seconds in busy)
        return middle, _ERROR * spread / math.sqrt(len(busy))


class WaitCount:
    """Count how often the training thread of this rank is seen to wait for the other ranks."""

    def __init__(self) -> None:
        self.samples = self.waits = self.begun = 0
        self._last = 0.0

    def record(self, heartbeat: Heartbeat) -> None:
        """Count a heartbeat. A rank that waits, and has made progress since the last one, has begun another wait."""
        since_last, self._last = heartbeat.when - self._last, heartbeat.when
        self.samples += 1
        self.waits += heartbeat.waits
        self.begun += heartbeat.waits and heartbeat.still < since_last


@dataclass(frozen=True, slots=True)
class Straggler:
    """A slow rank: it takes ``ratio`` times as long as the median rank, and all ranks lose ``seconds`` a step."""

    rank: int
    ratio: float
    seconds: float


def stragglers(paces: Mapping[int, tuple[float, float]]) -> tuple[Straggler, ...]:
    """Return the ranks that are certainly slow, the slowest first.

    ``paces`` maps each rank to what ``Pace.measure`` returned there. If there are only two ranks and they differ, the
    slower one is returned: which of their times is normal is unknown.
    """
    known = {rank: pace for rank, pace in paces.items() if pace[0] > 0}
    if len(known) < 2:
        return ()
    normal = statistics.median_low(pace for pace, _ in known.values())
    chance = statistics.median(noise for _, noise in known.values())
    slow = [
        Straggler(rank, pace / normal, pace - normal)
        for rank, (pace, noise) in known.items()
        if pace >= SLOW * normal and pace - normal >= _SURE * math.hypot(noise, chance)
    ]
    return tuple(sorted(slow, key=lambda straggler: -straggler.ratio))
