"""Act for the coordinator on another host: send what happens to the ranks, do what it says. Does no I/O.

A member that loses the coordinator ends its ranks by itself: they would learn of no failure any more.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from allranks.failure import Failure
from allranks.launch.events import (
    Action,
    Event,
    Finish,
    ForkServerLost,
    MarkFailed,
    Print,
    RankExited,
    RankStarted,
    Signal,
    Tick,
)
from allranks.launch.hosts.limits import LOST, HostLimits
from allranks.launch.hosts.messages import (
    Exiting,
    Finished,
    Happened,
    Message,
    Perform,
    PhaseChanged,
    Ping,
)
from allranks.launch.limits import Limits, Phase
from allranks.launch.placement import Placement
from allranks.launch.result import Ending

COORDINATOR = 0
# How many comparisons of the clocks count: the one with the shortest way there and back is the best.
COMPARISONS = 16


class Clock:
    """How far this host's clock is ahead of the coordinator's, from `Ping` and its answer."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, float]] = []  # seconds there and back, offset

    @property
    def offset(self) -> float:
        """In seconds; 0 while nothing is known."""
        return min(self._seen)[1] if self._seen else 0.0

    def compare(self, answer: Ping, received: float) -> None:
        """Use an answer of the coordinator that arrived at ``received`` (Unix time)."""
        offset = (answer.echo + received) / 2 - answer.sent
        self._seen = [*self._seen[1 - COMPARISONS :], (received - answer.echo, offset)]


class Member:
    """The state of one start of a job on another host than host 0. Each method returns what to do on this host.

    ``outbox`` is what to send; all of it goes to host 0, number 0. Arguments are as in `Coordinator`.
    """

    def __init__(
        self,
        placement: Placement,
        *,
        now: float,
        limits: Limits,
        wall: Callable[[], float],
        is_cut_off: Callable[[], bool] = lambda: False,
        host_limits: HostLimits,
        clock: Clock,
    ) -> None:
        self.placement = placement
        self.outbox: list[tuple[int, Message]] = []
        self.failed_rank: int | None = None
        self._phase = Phase.RUNNING
        self._limits, self._host_limits, self._wall, self._clock = limits, host_limits, wall, clock
        self._is_cut_off = is_cut_off
        self._now = self._heard = self._next_ping = now
        self._alive: set[int] = set()
        self._exiting: frozenset[int] = frozenset()
        self._finished: Finished | None = None
        self._kill_at = self._give_up_at = math.inf
        self._lost, self._culprit = "", 0

    @property
    def phase(self) -> Phase:
        return self._phase

    @property
    def has_lost_coordinator(self) -> bool:
        """Whether this host ends its ranks by itself."""
        return bool(self._lost)

    @property
    def deadline(self) -> float | None:
        """The time at which a `Tick` is due."""
        if self._lost:
            return min(self._kill_at, self._give_up_at)
        return min(self._next_ping, self._heard + self._host_limits.silence)

    def on(self, event: Event, now: float) -> list[Action]:
        """Process an event of this host."""
        self._now = max(self._now, now)
        if isinstance(event, RankStarted):
            self._alive.add(event.rank)
        elif isinstance(event, RankExited):
            self._alive.discard(event.rank)
        if isinstance(event, Tick):
            return self._tick(event)
        if not self._lost:
            self._send(Happened((self._on_coordinators_clock(event),)))
        elif isinstance(event, ForkServerLost) or not self._alive:
            return self._finish()
        return []

    def receive(self, host: int, message: Message, now: float) -> list[Action]:
        """Process a message of the coordinator."""
        del host
        self._now = self._heard = max(self._now, now)
        if isinstance(message, Ping):
            self._clock.compare(message, self._wall())
        elif isinstance(message, PhaseChanged):
            self._phase, self.failed_rank = message.phase, None if message.failed < 0 else message.failed
        elif isinstance(message, Finished):
            self._finished, self._phase = message, Phase.ENDED
            return [Finish(message.exit_code)]
        elif isinstance(message, Perform) and not self._lost:
            return list(message.actions)
        return []

    def lose(self, host: int, why: str, now: float) -> list[Action]:
        """Process the end of the connection to the coordinator."""
        del host
        self._now = max(self._now, now)
        if self._lost or self._finished is not None:
            return []
        self._lost = f"host {self.placement.hosts[0]} is lost: {why}"
        if self._is_cut_off():  # as the other hosts will say
            self._culprit = self.placement.host
            self._lost = f"host {self.placement.name} is lost: it is cut off: it has no network"
        self._kill_at = self._now + self._limits.crash_grace
        self._give_up_at = self._kill_at + self._limits.kill_patience
        self._phase = Phase.STOPPING
        if not self._alive:
            return self._finish()
        stop = Signal(tuple(sorted(self._alive)), signal.SIGTERM)
        return [MarkFailed(), Print(f"{self._lost}: stopping the ranks of this host"), stop]

    def ending(self) -> Ending:
        """Return why the job has ended."""
        end = self._finished
        if end is None:
            rank, host = self.placement.ranks_on(self._culprit)[0], self.placement.hosts[self._culprit]
            failure = Failure(rank, host, self._lost, self._wall(), exit_code=LOST)
            return Ending(LOST, failure, stopped=frozenset(self.placement.ranks))
        return Ending(end.exit_code, end.first_failure, end.cause, stopped=frozenset(end.stopped))

    def _tick(self, event: Tick) -> list[Action]:
        if self._lost:
            return self._tick_lost()
        if self._now >= self._heard + self._host_limits.silence:
            seconds = self._now - self._heard
            return self.lose(COORDINATOR, f"its launcher is silent for {seconds:.0f} s", self._now)
        if event.dying != self._exiting:
            self._exiting = event.dying
            self._send(Exiting(tuple(sorted(event.dying))))
        if self._now >= self._next_ping:
            self._next_ping = self._now + self._host_limits.ping
            self._send(Ping(self._wall(), offset=self._clock.offset))
        return []

    def _tick_lost(self) -> list[Action]:
        if self._now >= self._give_up_at:
            return self._finish()
        if self._now >= self._kill_at:
            self._kill_at = math.inf
            return [Signal(tuple(sorted(self._alive)), signal.SIGKILL)]
        return []

    def _finish(self) -> list[Action]:
        self._phase = Phase.ENDED
        return [Finish(LOST)]

    def _on_coordinators_clock(self, event: Event) -> Event:
        """Return the event with its times, which are of this host's clock, on the coordinator's clock."""
        changed: dict[str, Any] = {}
        when, failure = getattr(event, "when", None), getattr(event, "failure", None)
        if when is not None:
            changed["when"] = when - self._clock.offset
        if failure is not None:
            changed["failure"] = replace(failure, when=failure.when - self._clock.offset)
        return replace(event, **changed) if changed else event

    def _send(self, message: Message) -> None:
        self.outbox.append((COORDINATOR, message))
