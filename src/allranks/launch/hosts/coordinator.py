"""Decide for a whole job, in the launcher of host 0: one supervisor for the ranks of all hosts. Does no I/O.

The launchers of the other hosts (`allranks.launch.hosts.member`) send what happens to their ranks, and get what to do.
A job on one host has a coordinator without members. A member that is silent or whose connection ends is lost: its ranks
count as killed, and so the job ends on all hosts.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from allranks.failure import Failure
from allranks.launch.events import (
    Action,
    Event,
    Finish,
    ForkServerLost,
    HangEvent,
    HangReport,
    Interrupted,
    LocateRanks,
    NotifyPeers,
    Print,
    RankExited,
    RankFailed,
    RankFailing,
    Signal,
    Terminated,
    Tick,
    WaitReport,
)
from allranks.launch.hangs import PATIENCE, Hangs
from allranks.launch.hosts.limits import DEFAULT, LOST, HostLimits
from allranks.launch.hosts.messages import (
    Exiting,
    Finished,
    Happened,
    HostResult,
    Message,
    Perform,
    PhaseChanged,
    Ping,
)
from allranks.launch.limits import OUT_OF_TIME, Limits, Phase
from allranks.launch.placement import Placement
from allranks.launch.result import Ending, RankResult
from allranks.launch.saves import Saves
from allranks.launch.slow_ranks import SlowRanks
from allranks.launch.supervise import Supervisor

# Seconds by which clocks may differ without a word.
APART = 1.0
# Before ranks are signalled at the time limit, all hosts need so many seconds to find out where their ranks are.
LOCATING = 2.0
# How often members learn which rank has failed first, as far as it is known. Seconds.
ANNOUNCE = 0.1


@dataclass(frozen=True, slots=True)
class Pause:
    """A time during which the launcher itself did not run: for how many seconds, and when it ended."""

    seconds: float = 0.0
    end: float = -math.inf


class Coordinator:
    """The state of one start of a job. Each method takes the time, and returns what to do on this host.

    ``outbox`` is what to send: pairs of a host's number and a message. Whoever sends it empties it. ``now`` is any
    clock that runs forward; ``wall`` returns Unix time. Both are in seconds. ``is_cut_off`` returns whether this host
    has no network.
    """

    def __init__(
        self,
        placement: Placement,
        *,
        now: float,
        limits: Limits,
        wall: Callable[[], float],
        is_cut_off: Callable[[], bool] = lambda: False,
        host_limits: HostLimits = DEFAULT,
        cwd: str = "",
        saves: Saves | None = None,
    ) -> None:
        self.placement = placement
        self.outbox: list[tuple[int, Message]] = []
        self.results: dict[int, tuple[RankResult, ...]] = {}
        self._saves = saves or Saves()
        self._supervisor = Supervisor(
            placement.size, now=now, limits=limits, host=placement.hosts[0], cwd=cwd, saves=self._saves
        )
        self._slow_ranks, self._reported_slow = SlowRanks(placement), set[int]()
        self._hangs, self._end_hangs = Hangs(placement, limits.hang_after), limits.end_hangs
        self._limits, self._wall, self._is_cut_off, self._now = host_limits, wall, is_cut_off, now
        self._pause = Pause()
        self._clocks: set[int] = set()  # hosts whose clock was reported
        self._heard = dict.fromkeys(range(1, len(placement.hosts)), now)
        self._lost: dict[int, int | None] = {}  # ranks of lost hosts, with their wait codes
        self._exiting: dict[int, frozenset[int]] = {}
        self._signalled: dict[type[Event], set[int]] = {Interrupted: set(), Terminated: set()}
        self._signals_at, self._signals = math.inf, list[Action]()  # those that wait for the hosts to locate ranks
        self._announced = (Phase.RUNNING, -1)
        self._next_announcement = now
        self._exit_code = 0

    @property
    def members(self) -> frozenset[int]:
        """The numbers of the other hosts that are not lost."""
        return frozenset(self._heard)

    @property
    def phase(self) -> Phase:
        return self._supervisor.phase

    @property
    def failed_rank(self) -> int | None:
        """The rank that failed first, as far as it is known now; None while the job runs."""
        first = None if self.phase is Phase.RUNNING else self._supervisor.first_failure
        return None if first is None else first.rank

    @property
    def deadline(self) -> float | None:
        """The time at which a `Tick` is due, or None."""
        due = [self._silence_due(), self._signals_at]
        if self._heard and self.phase is not Phase.ENDED:
            due.append(self._now + self._limits.ping)
        if self.phase is Phase.RUNNING:
            due.append(self._hangs.due)
        if not self._is_held() and self._supervisor.deadline is not None:
            due.append(self._supervisor.deadline)
        return first if (first := min(due)) < math.inf else None

    def on(self, event: Event, now: float) -> list[Action]:
        """Process an event of this host."""
        self._advance(now)
        if not isinstance(event, Tick):
            return self._distribute(self._handle(event, 0))
        actions = [*self._take_signals(), *self._lose_silent()]
        if self.phase is Phase.RUNNING and (report := self._hangs.overdue(self._now)) is not None:
            actions += self._report_hang(report)
        if not self._is_held():
            actions += self._supervisor.on(Tick(event.dying.union(*self._exiting.values())), self._now)
        self._announce()
        return self._distribute(actions)

    def receive(self, host: int, message: Message, now: float) -> list[Action]:
        """Process a message of another host. Ignores hosts that are lost, and events of ranks of other hosts."""
        self._advance(now)
        if host not in self._heard:
            return []
        self._heard[host] = self._now
        if isinstance(message, Ping):
            self.outbox.append((host, Ping(self._wall(), echo=message.sent)))
            return self._compare_clock(host, message.offset)
        if isinstance(message, Exiting):
            self._exiting[host] = frozenset(message.ranks)
        elif isinstance(message, HostResult):
            self.results[host] = message.ranks
        elif isinstance(message, Happened):
            ranks = self.placement.ranks_on(host)
            known = [event for event in message.events if all(rank in ranks for rank in _ranks_of(event))]
            return self._distribute([action for event in known for action in self._handle(event, host)])
        return []

    def lose(self, host: int, why: str, now: float) -> list[Action]:
        """Process the end of the connection to another host."""
        self._advance(now)
        return self._distribute(self._lose(host, why))

    def ending(self) -> Ending:
        """Return why the job has ended."""
        supervisor = self._supervisor
        first = supervisor.first_failure
        cause, hang = supervisor.cause, self._hangs.headline
        if self._exit_code == OUT_OF_TIME and hang:
            cause = f"{cause}; reported before: {hang}"
        return Ending(
            self._exit_code,
            first and self._with_host(first),
            cause,
            supervisor.stalls.unjoined if self._exit_code == 0 else "",
            frozenset(rank for rank, end in supervisor.exits.items() if end.stopped_by_us),
            {one.failure.rank: self._with_host(one.failure) for one in reversed(supervisor.reports)},
            self._saves.step,
            self._slow_ranks.lines(),
            self._lost,
        )

    def _advance(self, now: float) -> None:
        if self._heard and now >= self._now + self._limits.ping + self._limits.doubt:  # a `Tick` is due after ``ping``
            self._pause = Pause(now - self._now, now)
        self._now = max(self._now, now)

    def _handle(self, event: Event, host: int) -> list[Action]:
        if isinstance(event, RankFailing | RankFailed) and not 0 <= event.failure.rank < self.placement.size:
            return []  # no agent of ours says that
        if isinstance(event, WaitReport):
            return self._note_waits(event)
        if isinstance(event, HangEvent):
            return self._hangs.on(event, self._now) if self.phase is Phase.RUNNING else []
        if isinstance(event, ForkServerLost) and len(self.placement.hosts) > 1:
            return self._lose_ranks(host, event.TEXT, self._now)
        if isinstance(event, Terminated) and len(self.placement.hosts) > 1:
            event = replace(event, host=self.placement.hosts[host])
        if isinstance(event, Interrupted | Terminated) and self._is_repeated_elsewhere(event, host):
            return []
        return self._pass_on(event)

    def _compare_clock(self, host: int, offset: float) -> list[Action]:
        """Report a host whose clock is ``offset`` seconds ahead, once."""
        if abs(offset) <= APART or host in self._clocks:
            return []
        self._clocks.add(host)
        who, ahead = self.placement.hosts[host], "ahead of" if offset > 0 else "behind"
        text = f"the clock of host {who} is {abs(offset):.1f} s {ahead} that of host {self.placement.hosts[0]}"
        why = "times in logs and files of the hosts cannot be compared (chrony, ntpd?)"
        return [Print(f"{text}: {why}", notice=True)]

    def _pass_on(self, event: Event) -> list[Action]:
        """Let the supervisor process an event. If ranks fail while one has been stopped for long, that is the cause."""
        before = self.phase
        actions = self._supervisor.on(event, self._now)
        cause = self._hangs.cause(PATIENCE, self._now, self._wall())
        if cause is not None and (before, self.phase) == (Phase.RUNNING, Phase.SETTLING):
            actions += self._supervisor.on(RankFailing(cause), self._now)
        return actions

    def _note_waits(self, event: WaitReport) -> list[Action]:
        """Record how often a rank waits; report ranks that are slow for the first time."""
        if not self._slow_ranks.note(event):
            return []
        slow = {one.rank for one in self._slow_ranks.slow()}
        is_new, self._reported_slow = bool(slow - self._reported_slow), self._reported_slow | slow
        return [Print(line, notice=True) for line in self._slow_ranks.lines()] if is_new else []

    def _report_hang(self, report: HangReport) -> list[Action]:
        """Report a hang that no watch has reported; end the job if that was wanted."""
        actions = self._hangs.on(report, self._now)
        if self._end_hangs:
            failed = RankFailed(self._hangs.failure(report, self._wall()), waits=False)
            actions += self._supervisor.on(failed, self._now)
        return actions

    def _is_repeated_elsewhere(self, event: Interrupted | Terminated, host: int) -> bool:
        """Return whether another host got the signal before, and this one gets it for the first time.

        Engines signal the launchers of all hosts. Only a second signal to the same host says that it is urgent.
        """
        hosts = self._signalled[type(event)]
        is_first_here, is_first = host not in hosts, not hosts
        hosts.add(host)
        return is_first_here and not is_first

    def _lose_silent(self) -> list[Action]:
        """Report the hosts that are silent for too long; if all are, and at once, then this host is cut off."""
        lost = self._silent(self._limits.silence)
        if lost and self.phase is not Phase.ENDED and self._has_lost_all():
            seconds = self._now - max(self._heard.values())
            them = "the other host" if len(self._heard) == 1 else "all other hosts"
            why = f"it is cut off: {them} {'is' if len(self._heard) == 1 else 'are'} silent for {seconds:.0f} s"
            hosts = [*self._heard]
            self._heard.clear()
            return self._lose_host_0(why, seconds, hosts)
        return [action for host in lost for action in self._lose(host, "")]

    def _has_lost_all(self) -> bool:
        at_once = max(self._limits.doubt, self._limits.silence - 3 * self._limits.ping)
        all_silent = len(self._silent(at_once)) == len(self._heard) == len(self.placement.hosts) - 1
        was_stopped = self._now < self._pause.end + self._limits.doubt  # then it has not read what they sent
        return all_silent and not was_stopped and (len(self._heard) > 1 or self._is_cut_off())

    def _lose(self, host: int, why: str) -> list[Action]:
        heard = self._heard.pop(host, None)
        if heard is None:
            return []
        self._exiting.pop(host, None)
        why = why or f"its launcher is silent for {self._now - heard:.0f} s (no power, no network, or stopped)"
        if self._now < self._pause.end + self._limits.doubt:
            if self._pause.seconds >= self._limits.silence - 2 * self._limits.ping:
                seconds = self._pause.seconds
                return self._lose_host_0(f"its launcher was stopped for {seconds:.0f} s", seconds, [host])
            why += f", after the launcher of host {self.placement.hosts[0]} was stopped for {self._pause.seconds:.0f} s"
        return self._lose_ranks(host, why, heard)

    def _lose_host_0(self, why: str, seconds: float, hosts: Sequence[int]) -> list[Action]:
        """Report that other ``hosts`` have given up this one, which is host 0, for a reason of ``seconds`` ago."""
        when, what = self._wall() - seconds, f"host {self.placement.hosts[0]} is lost: {why}"
        living = [rank for host in hosts for rank in self._note_lost(host)]
        failure = Failure(0, "", what, when, exit_code=LOST)
        events: list[Event] = [RankFailing(failure, explains=True), RankFailed(failure, waits=False)]
        events += [RankExited(rank, -signal.SIGTERM, self._wall()) for rank in living]
        return [action for event in events for action in self._supervisor.on(event, self._now)]

    def _lose_ranks(self, host: int, why: str, since: float) -> list[Action]:
        """Report the ranks of a host as failed and ended; as stopped by us if the job is being stopped anyway."""
        when = self._wall() - (self._now - since)
        what = f"host {self.placement.hosts[host]} is lost: {why}"
        living = self._note_lost(host)
        failures = [RankFailed(Failure(rank, "", what, when), waits=False) for rank in living]
        is_stopping = self.phase in (Phase.STOPPING, Phase.KILLING)
        ends = [RankExited(rank, -(signal.SIGTERM if is_stopping else signal.SIGKILL), when) for rank in living]
        events: list[Event] = [*failures, *ends]
        actions = [action for event in events for action in self._supervisor.on(event, self._now)]
        if living and not is_stopping:
            return actions
        line = f"{what}, {'while the job ends' if living else 'after its ranks have ended'}"
        return [*actions, Print(line, elsewhere=line)]

    def _note_lost(self, host: int) -> list[int]:
        """Record that a host is lost; return its ranks that had not ended."""
        exits = {rank: self._supervisor.exits.get(rank) for rank in self.placement.ranks_on(host)}
        self._lost |= {rank: end.wait_code if end else None for rank, end in exits.items()}
        return [rank for rank, end in exits.items() if end is None]

    def _take_signals(self) -> list[Action]:
        """Return the signals that have waited long enough."""
        if self._now < self._signals_at:
            return []
        due, self._signals, self._signals_at = self._signals, [], math.inf
        return due

    def _distribute(self, actions: list[Action]) -> list[Action]:
        """Return the actions of this host, and put those of the others into the outbox."""
        own: list[Action] = []
        if self._heard and any(isinstance(one, LocateRanks) and one.reason == "time" for one in actions):
            self._signals_at = self._now + LOCATING
            self._signals = [one for one in actions if isinstance(one, Signal)]
            actions = [one for one in actions if not isinstance(one, Signal)]
        for action in actions:
            if isinstance(action, Signal | NotifyPeers):
                by_host = self.placement.by_host(action.ranks)
                for host, ranks in by_host.items():
                    self._send(host, replace(action, ranks=ranks), own)
            elif isinstance(action, Print):
                self._send(0, action, own)
                if action.elsewhere:
                    self._send_to_members(Print(action.elsewhere, action.notice))
            elif isinstance(action, Finish):
                self._exit_code = action.exit_code
                own.append(action)
                self._send_end()
            else:
                located = replace(action, culprits=self._hangs.culprits) if isinstance(action, LocateRanks) else action
                self._send(0, located, own)
                self._send_to_members(located)
        return own

    def _send_to_members(self, action: Action) -> None:
        self.outbox += [(host, Perform((action,))) for host in self._heard]

    def _send(self, host: int, action: Action, own: list[Action]) -> None:
        if host == 0:
            own.append(action)
        elif host in self._heard:
            self.outbox.append((host, Perform((action,))))

    def _send_end(self) -> None:
        """Send the end to all hosts: a lost one may only have been stopped, and then learns why it ends."""
        end = self.ending()
        for host in range(1, len(self.placement.hosts)):
            stopped = tuple(sorted(end.stopped.intersection(self.placement.ranks_on(host))))
            self.outbox.append((host, Finished(end.exit_code, end.first_failure, end.cause, stopped)))

    def _announce(self) -> None:
        """Send the phase, and the rank that failed first, to the members."""
        if self._heard and self.phase is not Phase.RUNNING and self._now >= self._next_announcement:
            self._next_announcement = self._now + ANNOUNCE
            failed = self.failed_rank
            state = self.phase, -1 if failed is None else failed
            if state != self._announced:
                self._announced = state
                self.outbox += [(host, PhaseChanged(*state)) for host in self._heard]

    def _with_host(self, failure: Failure) -> Failure:
        return replace(failure, host=self.placement.hosts[self.placement.host_of(failure.rank)])

    def _is_held(self) -> bool:
        """Return whether the job waits for the cause of a failure, and a silent host may be that cause."""
        return self.phase is Phase.SETTLING and bool(self._silent(self._limits.doubt))

    def _silent(self, seconds: float) -> list[int]:
        return [host for host, heard in self._heard.items() if self._now >= heard + seconds]

    def _silence_due(self) -> float:
        if self.phase is Phase.ENDED:
            return math.inf
        return min(self._heard.values(), default=math.inf) + self._limits.silence


def _ranks_of(event: Event) -> tuple[int, ...]:
    """Return the rank whose process an event is about. Any rank may report the failure of another one."""
    rank = None if isinstance(event, RankFailing | RankFailed) else getattr(event, "rank", None)
    return () if rank is None else (rank,)
