"""A job on simulated hosts: real deciders of launchers, and ranks, a network and clocks that are made up."""

from __future__ import annotations

import heapq
import itertools
import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from allranks.failure import Failure
from allranks.launch.events import (
    Action,
    Event,
    Finish,
    Print,
    RankExited,
    RankFailed,
    RankResumed,
    RankStarted,
    RankSuspended,
    ShareSuspended,
    Signal,
    Terminated,
    Tick,
)
from allranks.launch.hosts.coordinator import Coordinator
from allranks.launch.hosts.limits import HostLimits
from allranks.launch.hosts.member import Clock, Member
from allranks.launch.hosts.messages import Message, decode, encode
from allranks.launch.limits import Limits
from allranks.launch.placement import Placement

EPOCH = 1_700_000_000.0
LIMITS = Limits(hang_after=0.0)


@dataclass
class Rank:
    """A rank that trains until somebody stops it. ``obeys``: it ends at SIGTERM."""

    number: int
    obeys: bool = True
    alive: bool = False


@dataclass
class Host:
    """One host: its decider, its ranks, the offset of its clock, what happens to it, and what it prints."""

    number: int
    decider: Coordinator | Member
    ranks: dict[int, Rank]
    offset: float = 0.0
    has_power: bool = True
    is_cut: bool = False
    is_stopped: bool = False
    ended: Action | None = None
    due: float = 0.0
    sent: Counter[str] = field(default_factory=Counter)
    printed: list[str] = field(default_factory=list)
    suspended: tuple[int, ...] = ()


class Simulation:
    """``hosts`` hosts with ``ranks`` ranks each. Every random choice comes from ``seed``."""

    def __init__(
        self,
        hosts: int,
        ranks: int,
        *,
        seed: int = 0,
        delay: float = 0.01,
        silence: float = 15.0,
        limits: Limits = LIMITS,
    ) -> None:
        self.now, self.limits = 0.0, limits
        self.sees_cut = True  # a host sees that its own cable is cut
        self.random = random.Random(seed)
        self.delay = delay
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._last: dict[tuple[int, int], float] = {}
        self.hosts: list[Host] = []
        host_limits = HostLimits(silence=silence)
        names = tuple(f"h{number}" for number in range(hosts))
        for number in range(hosts):
            placement = Placement(names, (ranks,) * hosts, number)
            offset = self.random.uniform(-5, 5) if number else 0.0
            decider = self._decider(placement, offset, host_limits)
            self.hosts.append(Host(number, decider, {rank: Rank(rank) for rank in placement.ranks}, offset))
        for host in self.hosts:
            for rank in host.ranks.values():
                self.at(self.random.uniform(0, 0.5), lambda host=host, rank=rank: self.start_rank(host, rank))
            self._schedule(host)

    def _decider(self, placement: Placement, offset: float, limits: HostLimits) -> Coordinator | Member:
        def wall() -> float:
            return EPOCH + self.now + offset

        common: dict[str, Any] = {
            "now": 0.0,
            "limits": self.limits,
            "wall": wall,
            "is_cut_off": lambda: self.sees_cut and self.hosts[placement.host].is_cut,
            "host_limits": limits,
        }
        return Member(placement, **common, clock=Clock()) if placement.host else Coordinator(placement, **common)

    def at(self, seconds: float, what: Callable[[], None]) -> None:
        """Do something ``seconds`` from now."""
        heapq.heappush(self._queue, (self.now + seconds, next(self._order), what))

    def run(self, until: float) -> None:
        """Let time pass until every living host has ended, or until a time."""
        for turn in itertools.count():
            if turn % len(self.hosts) == 0 and all(host.ended for host in self.living):
                return
            if not self._queue or self._queue[0][0] > until:
                return
            self.now, _, what = heapq.heappop(self._queue)
            what()

    @property
    def living(self) -> list[Host]:
        """The hosts that must come to an end."""
        return [host for host in self.hosts if host.has_power and not host.is_stopped]

    # What can happen to ranks.

    def start_rank(self, host: Host, rank: Rank) -> None:
        if host.has_power and host.ended is None:
            rank.alive = True
            self.event(host, RankStarted(rank.number))

    def fail(self, number: int) -> None:
        """Let a rank raise an exception; half a second later, the ranks that can hear of it report broken sockets."""
        host = self.host_of(number)
        failure = Failure(number, f"h{host.number}", "ValueError: bad row", self.wall(host))
        self.event(host, RankFailed(failure))
        self.at(0.05, lambda: self.break_sockets(number))

    def break_sockets(self, number: int) -> None:
        for other in self.hosts:
            for rank in other.ranks.values():
                if rank.number != number and rank.alive and self.random.random() < 0.3:
                    text = "RuntimeError: [gloo] Connection closed by peer [10.0.0.1]:1"
                    self.event(other, RankFailed(Failure(rank.number, "", text, self.wall(other)), waits=False))

    def kill(self, number: int) -> None:
        """Kill a rank by SIGKILL."""
        host = self.host_of(number)
        if host.ranks[number].alive:
            self.end_rank(host, number, -signal.SIGKILL)

    def end_rank(self, host: Host, number: int, code: int) -> None:
        if host.ranks[number].alive and host.has_power:
            host.ranks[number].alive = False
            self.event(host, RankExited(number, code, self.wall(host)))

    def suspend(self, number: int) -> None:
        """Stop the process of a rank: its launcher sees that."""
        self.event(self.host_of(number), RankSuspended(number))

    def resume(self, number: int) -> None:
        self.event(self.host_of(number), RankResumed(number))

    # What can happen to hosts.

    def power_off(self, number: int) -> None:
        """A host goes, and its network with it: nobody is told."""
        host = self.hosts[number]
        host.has_power, host.is_cut = False, True
        for rank in host.ranks.values():
            rank.alive = False

    def kill_launcher(self, number: int) -> None:
        """A launcher is killed: its kernel closes the connections, and its ranks die with it."""
        host = self.hosts[number]
        host.has_power = False
        for rank in host.ranks.values():
            rank.alive = False
        peers = self.hosts[1:] if number == 0 else [self.hosts[0]]
        for peer in peers:
            self.at(self.delay, lambda peer=peer: self.lose(peer, number))

    def cut(self, number: int) -> None:
        self.hosts[number].is_cut = True

    def stop(self, number: int) -> None:
        """Every process of a host is stopped."""
        self.hosts[number].is_stopped = True

    def lose(self, peer: Host, number: int) -> None:
        if self.can_act(peer):
            self.perform(peer, peer.decider.lose(number, "its launcher has ended", self.now))

    def terminate(self, number: int) -> None:
        self.event(self.hosts[number], Terminated())

    # How it goes on.

    def can_act(self, host: Host) -> bool:
        return host.has_power and not host.is_stopped and host.ended is None

    def event(self, host: Host, event: Event) -> None:
        if self.can_act(host):
            self.perform(host, host.decider.on(event, self.now))

    def perform(self, host: Host, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Finish) and host.ended is None:
                host.ended = action
            elif isinstance(action, Signal):
                for number in action.ranks:
                    self.signal(host, host.ranks[number], action.signum)
            elif isinstance(action, Print):
                host.printed.append(action.text)
            elif isinstance(action, ShareSuspended):
                host.suspended = action.ranks
        outbox, host.decider.outbox = host.decider.outbox, []
        for to, message in outbox:
            host.sent[type(message).__name__] += 1
            self.post(host, self.hosts[to], message)
        self._schedule(host)

    def signal(self, host: Host, rank: Rank, signum: int) -> None:
        if signum == signal.SIGKILL or rank.obeys:
            wait = self.random.uniform(0, 0.3)
            self.at(wait, lambda: self.end_rank(host, rank.number, -signum))

    def post(self, sender: Host, receiver: Host, message: Message) -> None:
        """Deliver a message after a while, in the order of each connection; not over a cut cable."""
        key = sender.number, receiver.number
        arrival = max(self.now + self.random.uniform(0, self.delay), self._last.get(key, 0.0))
        self._last[key] = arrival

        def arrive() -> None:
            if self.can_act(receiver) and not sender.is_cut and not receiver.is_cut:
                self.perform(receiver, receiver.decider.receive(sender.number, decode(encode(message)), self.now))

        self.at(arrival - self.now, arrive)

    def _schedule(self, host: Host) -> None:
        due = host.decider.deadline
        if due is None or host.ended is not None or self.now < host.due <= due:
            return
        host.due = max(due, self.now)

        def tick() -> None:
            if host.due <= self.now and self.can_act(host):
                host.due = 0.0
                self.perform(host, host.decider.on(Tick(), self.now))

        self.at(host.due - self.now, tick)

    def host_of(self, number: int) -> Host:
        return next(host for host in self.hosts if number in host.ranks)

    def wall(self, host: Host) -> float:
        return EPOCH + self.now + host.offset
