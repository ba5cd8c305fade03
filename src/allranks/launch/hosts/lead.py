"""Lead a job on several hosts, in the launcher of host 0: let the others in, start, end, and perhaps start again."""

from __future__ import annotations

import os
import secrets
import select
import time
from contextlib import closing
from dataclasses import replace

from allranks.launch import restarts
from allranks.launch.engines import local
from allranks.launch.events import Interrupted, Print, Terminated
from allranks.launch.hosts.admission import Admission, store_key_of
from allranks.launch.hosts.connect import (
    FIRST_NOTICE,
    NOTICE,
    HostsMissing,
    listen,
)
from allranks.launch.hosts.coordinator import Coordinator
from allranks.launch.hosts.gathering import Crew, Gathering
from allranks.launch.hosts.launcher import JobRefused, Launcher
from allranks.launch.hosts.links import LinkEnd, Links
from allranks.launch.hosts.messages import (
    Goodbye,
    Happened,
    Message,
    Plan,
    Refusal,
)
from allranks.launch.hosts.start import JobHosts, JobLinks, Start, coordinator
from allranks.launch.job import Job
from allranks.launch.placement import Placement
from allranks.launch.ports import ReservedPorts
from allranks.launch.restarts import NotStarted, Stopped
from allranks.launch.result import JobResult, RankResult

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - the other hosts connect to it


class Lead(Launcher):
    """The launcher of host 0."""

    def run(self) -> JobResult:
        self._links = self._stack.enter_context(closing(Links(listen(self._place))))
        self._admission = Admission(
            self._links,
            job=self._place.job,
            key=self._key,
            limits=self._limits,
            wall=time.time,
            note=self.note,
        )
        self._starts = 0
        self._goodbye = Goodbye()
        try:
            return restarts.run(self._job, self._start, report=self._screen.note)
        except NotStarted as error:
            self._send_to_all(Refusal(str(error), error.exit_code))
            raise
        finally:
            self._send_to_all(self._goodbye)
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
        try:
            crew = self._gather()
        except Stopped as error:
            self._goodbye = Goodbye(error.event, error.host)
            raise
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
            address, key = self._place.coordinator, store_key_of(self._key, plan)
            here = JobHosts(placement, plan.job_id, address, ports.numbers, decide, links, key)
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
            store_key="" if self._key else secrets.token_hex(16),
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
                    self._obey(link, message)
            now = time.monotonic()
        self._describe(gathering)
        return gathering.crew()

    def _obey(self, link: int, message: Message | LinkEnd | None) -> None:
        """End the wait if the launcher of another host has received a signal."""
        if isinstance(message, Happened) and link in self._admission.hellos:
            for event in message.events:
                if isinstance(event, Interrupted | Terminated):
                    raise Stopped(event, self._admission.hellos[link].name)

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

    def _await_results(self, coordinator: Coordinator, links: JobLinks) -> None:
        deadline = time.monotonic() + self._limits.results
        while coordinator.members - coordinator.results.keys() and (now := time.monotonic()) < deadline:
            select.select([links], [], [], min(self._limits.ping, deadline - now))
            for action in links.receive(coordinator, time.monotonic()):
                if isinstance(action, Print):
                    self.note(action.text)
            links.flush(coordinator)
        for host in sorted(coordinator.members - coordinator.results.keys()):
            name = coordinator.placement.hosts[host]
            self.note(f"host {name} is lost: its launcher has not reported the end of its ranks")

    @property
    def _address(self) -> str:
        return f"{self._place.coordinator}:{self._links.port}"


def _of_all_hosts(result: JobResult, coordinator: Coordinator, placement: Placement) -> JobResult:
    """Return the result of host 0 with the ranks of the other hosts."""
    end = coordinator.ending()
    ranks: dict[int, RankResult] = {one.rank: one for one in result.ranks}
    for host in range(1, len(placement.hosts)):
        for one in coordinator.results.get(host, ()):
            ranks[one.rank] = one
        for rank in placement.ranks_on(host):
            code, is_lost = end.lost_ranks.get(rank), rank in end.lost_ranks
            lost = RankResult(rank, placement.hosts[host], None, code, seconds=None, is_lost=is_lost and code is None)
            known = ranks.get(rank) or lost
            ranks[rank] = replace(known, stopped=rank in end.stopped, reported=end.reported.get(rank))
    return replace(result, ranks=tuple(ranks[rank] for rank in sorted(ranks)))


def _shorten(names: str, longest: int = 80) -> str:
    return names if len(names) <= longest else f"{names[:longest]}..."
