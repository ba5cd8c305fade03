"""Run a job on several hosts, in the launcher of one of them: meet the others, start, end, and perhaps start again."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Protocol

from allranks.launch import restarts
from allranks.launch.console import Console
from allranks.launch.engines import local
from allranks.launch.events import LocateRanks
from allranks.launch.hosts.admission import Admission
from allranks.launch.hosts.connect import FIRST_NOTICE, NOTICE, HostsMissing, connect, is_local_address, listen
from allranks.launch.hosts.coordinator import Coordinator
from allranks.launch.hosts.facts import command_of, facts_of
from allranks.launch.hosts.gathering import Crew, Gathering
from allranks.launch.hosts.limits import HostLimits
from allranks.launch.hosts.links import LinkEnd, Links
from allranks.launch.hosts.member import COORDINATOR, Clock, Member
from allranks.launch.hosts.messages import (
    Goodbye,
    Hello,
    HostResult,
    Message,
    Ping,
    Plan,
    Refusal,
)
from allranks.launch.hosts.place import JOB_KEY, HostPlace
from allranks.launch.hosts.start import JobHosts, JobLinks, Start, coordinator
from allranks.launch.job import Job
from allranks.launch.placement import Placement
from allranks.launch.ports import ReservedPorts
from allranks.launch.restarts import NotStarted
from allranks.launch.result import JobResult, RankResult
from allranks.launch.signals import Signals
from allranks.launch.stall import RankLocations

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - the other hosts connect to it
APART = 1.0  # seconds by which clocks may differ without a word


class JobRefused(NotStarted):
    """Raised when the hosts of a job cannot run it together: other versions, another program, wrong numbers."""


class Stopped(NotStarted):
    """Raised when a signal ends the wait for the other hosts. ``exit_code`` is as a shell shows it."""


class Screen(Protocol):
    """Where the launcher shows what happens."""

    def console(self, placement: Placement) -> Console:
        """Return the console for the ranks of this host, the same one for the same placement."""
        ...

    def note(self, text: str) -> None:
        """Print a line."""
        ...

    def locate(self, request: LocateRanks, pids: Mapping[int, int]) -> RankLocations:
        """Find out where ranks are that delay the job."""
        ...


def run(job: Job, place: HostPlace, screen: Screen, limits: HostLimits) -> JobResult:
    """Run a job together with the launchers of the other hosts; return its result.

    On host 0 the result has the ranks of all hosts, elsewhere those of this host. Raises HostsMissing, JobRefused or
    Stopped if the job was not started.
    """
    hello = Hello(
        socket.gethostname(),
        job.ranks,
        number=-1 if place.number is None else place.number,
        job=place.job,
        target=command_of(job),
        facts={**facts_of(job), "the number of hosts": f"{place.fewest}:{place.most}"},
    )
    leads = place.number == 0 if place.number is not None else is_local_address(place.coordinator)
    session = _Lead if leads else _Follow
    with session(job, place, replace(hello, number=0) if leads else hello, screen, limits) as one:
        return one.run()


class _Session:
    """What both sides of a job on several hosts need."""

    def __init__(self, job: Job, place: HostPlace, hello: Hello, screen: Screen, limits: HostLimits) -> None:
        self._job, self._place, self._hello = job, place, hello
        self._screen, self._limits = screen, limits
        self._key = os.environ.get(JOB_KEY, "")
        self._stack = ExitStack()

    def __enter__(self) -> _Session:
        self._signals = self._stack.enter_context(Signals())
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self) -> JobResult:
        raise NotImplementedError

    def note(self, text: str) -> None:
        """Print a line."""
        self._screen.note(f"allranks: {text}")

    def _wait(self, links: Links, until: float) -> list[tuple[int, Message | LinkEnd | None]]:
        """Wait for a message until a time; return it, or nothing. Raises Stopped at a signal."""
        timeout = 0.0 if links.has_unread else max(0.0, until - time.monotonic())
        select.select([links.fileno(), self._signals.fileno()], [], [], timeout)
        for event in self._signals.events():
            signum = getattr(event, "signum", signal.SIGINT)
            name = signal.Signals(signum).name
            why = f"host {self._hello.name}: {name} during the wait for the other hosts: nothing was started."
            raise Stopped(why, exit_code=128 + signum)
        message = links.next()
        return [] if message is None else [message]


class _Lead(_Session):
    """The launcher of host 0."""

    def run(self) -> JobResult:
        self._links = self._stack.enter_context(closing(Links(listen(self._place))))
        self._admission = Admission(
            self._links, job=self._place.job, key=self._key, limits=self._limits, wall=time.time
        )
        self._starts = 0
        try:
            return restarts.run(self._job, self._start, report=self._screen.note)
        except NotStarted as error:
            self._send_to_all(Refusal(str(error), error.exit_code))
            raise
        finally:
            self._send_to_all(Goodbye())
            self._drain()

    def _send_to_all(self, message: Message) -> None:
        for link in self._admission.hellos:
            self._links.send(link, message)

    def _drain(self) -> None:
        """Wait until what was said last has been sent."""
        deadline = time.monotonic() + self._limits.ping
        while self._links.waits_to_send() and time.monotonic() < deadline:
            self._links.read(0.05)

    def _start(self, job: Job) -> JobResult:
        """Start the job once on the hosts that are there, and return its result."""
        self._admission.wait = ""
        crew = self._gather()
        self._starts += 1
        self._admission.wait = "the job runs without it, until it is started again."
        if job.restart >= job.restarts:
            self._admission.closed = f"the job of host {self._hello.name} runs without it, and is not started again"
        placement, hosts = crew.placement, {link: host for host, link in enumerate(crew.links) if link is not None}
        decided: list[Coordinator] = []

        def decide(start: Start) -> Coordinator:
            decided.append(coordinator(start, self._limits))
            return decided[0]

        links = JobLinks(self._links, hosts, self._receive)
        with ReservedPorts(2, ANY_ADDRESS) as ports:
            plan = self._plan(job, placement, ports.numbers)
            console = self._screen.console(placement)
            for link, host in hosts.items():
                self._links.send(link, replace(plan, host=host))
            here = JobHosts(placement, plan.job_id, self._place.coordinator, ports.numbers, decide, links)
            result = local.run(job, console, show=self._screen.locate, hosts=here)
        self._await_results(decided[0], links)
        for link, host in hosts.items():
            if host in decided[0].members:
                self._admission.keep(link, time.monotonic())
            else:
                self._admission.forget(link)
        return _of_all_hosts(result, decided[0], placement)

    def _receive(self, link: int, message: Message | LinkEnd | None) -> None:
        self._admission.receive(link, message, time.monotonic())

    def _plan(self, job: Job, placement: Placement, ports: tuple[int, ...]) -> Plan:
        return Plan(
            placement.hosts,
            placement.counts,
            0,
            f"{self._hello.name}-{os.getpid()}-{self._starts}-{ports[0]}",
            ports[0],
            ports[1],
            restart=job.restart,
            restarts=job.restarts,
            reason=job.reason,
        )

    def _gather(self) -> Crew:
        """Wait until enough hosts are there. Raises HostsMissing or JobRefused."""
        now = time.monotonic()
        limits = self._limits
        if self._starts:
            limits = replace(limits, joining=limits.comeback, last_call=limits.restart_call)
        gathering = Gathering(
            self._hello, self._place.fewest, self._place.most, now, limits=limits, names=self._place.names, changed=now
        )
        notice = now + FIRST_NOTICE
        while not gathering.is_complete(now):
            self._admit(gathering, now)
            if gathering.is_over(now):
                raise HostsMissing(
                    f"host {self._hello.name}: after {limits.joining:g} s, {gathering.missing()} "
                    f"({self._place.evidence}).",
                    remedy=f"Was allranks run started on all of them, and can they reach {self._address}?",
                )
            if now >= notice:
                notice = now + NOTICE
                self.note(f"waiting for hosts at {self._address}: {gathering.missing()}")
            until = min(gathering.due, notice, now + self._limits.ping)
            if not gathering.is_complete(now):
                for link, message in self._wait(self._links, until):
                    self._receive(link, message)
            now = time.monotonic()
        self._describe(gathering)
        return gathering.crew()

    def _admit(self, gathering: Gathering, now: float) -> None:
        self._admission.drop_silent(now)
        for link in [*gathering.present]:
            if link not in self._admission.hellos:
                gathering.remove(link)
        for link, hello in [*self._admission.hellos.items()]:
            if link in gathering.present:
                continue
            refusal, obstacle = gathering.add(link, hello, now)
            if obstacle and not self._starts:
                raise JobRefused(obstacle)
            if refusal or obstacle:
                self._admission.refuse(link, refusal or obstacle, is_final=True)

    def _describe(self, gathering: Gathering) -> None:
        placement = gathering.crew().placement
        counts = placement.counts
        each = f"{counts[0]} each" if len(set(counts)) == 1 else ", ".join(map(str, counts))
        self.note(
            f"{placement.size} ranks on {len(counts)} hosts ({each}): {_shorten(', '.join(placement.hosts))}; "
            f"{self._place.evidence}"
        )
        for line in gathering.different_targets():
            self.note(line)
        for link, offset in self._admission.clocks.items():
            if abs(offset) > APART and link in gathering.present:
                ahead = "ahead of" if offset > 0 else "behind"
                self.note(
                    f"the clock of host {gathering.present[link].name} is {abs(offset):.1f} s {ahead} that of host "
                    f"{self._hello.name}: times in logs and files of the hosts cannot be compared (chrony, ntpd?)"
                )

    def _await_results(self, coordinator: Coordinator, links: JobLinks) -> None:
        deadline = time.monotonic() + self._limits.results
        while coordinator.members - coordinator.results.keys() and (now := time.monotonic()) < deadline:
            select.select([links], [], [], min(self._limits.ping, deadline - now))
            links.receive(coordinator, time.monotonic())
            links.flush(coordinator)

    @property
    def _address(self) -> str:
        return f"{self._place.coordinator}:{self._links.port}"


class _Follow(_Session):
    """The launcher of another host than host 0."""

    def run(self) -> JobResult:
        self._links = self._stack.enter_context(closing(Links()))
        until = time.monotonic() + self._limits.joining
        self._connect(until)
        result: JobResult | None = None
        while True:
            message = self._next_order(has_run=result is not None)
            if isinstance(message, Plan):
                result, is_lost = self._start(message)
                if is_lost:
                    return result
            elif result is not None:
                return result
            elif isinstance(message, Refusal):
                raise JobRefused(message.text, exit_code=message.exit_code)
            elif isinstance(message, Goodbye):
                raise HostsMissing(f"host {self._hello.name}: the job has ended, and this host had no part in it.")
            else:
                self.note(f"host {self._hello.name} has lost host 0 ({self._place.coordinator}): {message.why}")
                self._connect(until)

    def _connect(self, until: float) -> None:
        """Connect to host 0, until a time. Raises HostsMissing."""
        self._clock = Clock()
        self._link = connect(
            self._links,
            self._hello,
            self._place,
            self._limits,
            until=until,
            key=self._key,
            wait=self._wait,
            note=self.note,
        )

    def _start(self, plan: Plan) -> tuple[JobResult, bool]:
        """Run the ranks of this host; return how they ended, and whether host 0 was lost."""
        placement = Placement(plan.hosts, plan.counts, plan.host)
        job = replace(self._job, restart=plan.restart, restarts=plan.restarts, reason=plan.reason)

        decided: list[Member] = []

        def decide(start: Start) -> Member:
            decided.append(
                Member(
                    start.placement,
                    now=start.now,
                    limits=start.limits,
                    wall=time.time,
                    host_limits=self._limits,
                    clock=self._clock,
                )
            )
            return decided[0]

        ports = (plan.coordinator_port, plan.master_port)
        links = JobLinks(self._links, {self._link: COORDINATOR}, lambda _link, _message: None)
        here = JobHosts(placement, plan.job_id, self._place.coordinator, ports, decide, links)
        result = local.run(job, self._screen.console(placement), show=self._screen.locate, hosts=here)
        failed = -1 if result.first_failure is None else result.first_failure.rank
        ranks = tuple(replace(one, reported=None, tail=one.tail if one.rank == failed else ()) for one in result.ranks)
        self._links.send(self._link, HostResult(ranks))
        return result, decided[0].has_lost_coordinator

    def _next_order(self, *, has_run: bool) -> Plan | Refusal | Goodbye | LinkEnd:
        """Wait for what host 0 says next; tell it that this host is alive."""
        heard, next_ping = time.monotonic(), 0.0
        while True:
            now = time.monotonic()
            if now >= heard + self._limits.silence:
                return LinkEnd(f"its launcher is silent for {now - heard:.0f} s")
            if now >= next_ping:
                next_ping = now + self._limits.ping
                self._links.send(self._link, Ping(time.time(), offset=self._clock.offset))
            try:
                messages = self._wait(self._links, next_ping)
            except Stopped:
                if has_run:
                    return Goodbye()
                raise
            for _, message in messages:
                heard = time.monotonic()
                if isinstance(message, Ping):
                    self._clock.compare(message, time.time())
                elif isinstance(message, Plan | Refusal | Goodbye | LinkEnd):
                    return message


def _of_all_hosts(result: JobResult, coordinator: Coordinator, placement: Placement) -> JobResult:
    """Return the result of host 0 with the ranks of the other hosts."""
    end = coordinator.ending()
    ranks: dict[int, RankResult] = {one.rank: one for one in result.ranks}
    for host in range(1, len(placement.hosts)):
        for one in coordinator.results.get(host, ()):
            ranks[one.rank] = one
        for rank in placement.ranks_on(host):
            known = ranks.get(rank) or RankResult(rank, placement.hosts[host], None, None)
            ranks[rank] = replace(known, stopped=rank in end.stopped, reported=end.reported.get(rank))
    return replace(result, ranks=tuple(ranks[rank] for rank in sorted(ranks)))


def _shorten(names: str, longest: int = 80) -> str:
    return names if len(names) <= longest else f"{names[:longest]}..."
