"""Run a job on several hosts, in the launcher of one of them: meet the others, start, end, and perhaps start again."""

from __future__ import annotations

import math
import socket
import time
from contextlib import closing
from dataclasses import replace

from allranks.launch.engines import local
from allranks.launch.hosts.admission import store_key_of
from allranks.launch.hosts.connect import (
    HostsMissing,
    connect,
    is_cut_off,
    is_local_address,
)
from allranks.launch.hosts.facts import command_of, facts_of
from allranks.launch.hosts.launcher import JobRefused, Launcher, Screen
from allranks.launch.hosts.lead import Lead
from allranks.launch.hosts.limits import HostLimits
from allranks.launch.hosts.links import LinkEnd, Links
from allranks.launch.hosts.member import COORDINATOR, Clock, Member
from allranks.launch.hosts.messages import (
    Goodbye,
    Happened,
    Hello,
    HostResult,
    Ping,
    Plan,
    Refusal,
)
from allranks.launch.hosts.place import HostPlace
from allranks.launch.hosts.start import JobHosts, JobLinks, Start
from allranks.launch.job import Job
from allranks.launch.placement import Placement
from allranks.launch.restarts import Stopped
from allranks.launch.result import JobResult


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
        facts={**facts_of(job), "the number of hosts (--hosts)": f"{place.fewest}:{place.most}"},
    )
    leads = place.number == 0 if place.number is not None else is_local_address(place.coordinator)
    session = Lead if leads else Follow
    with session(job, place, replace(hello, number=0) if leads else hello, screen, limits) as one:
        return one.run()


class Follow(Launcher):
    """The launcher of another host than host 0."""

    def run(self) -> JobResult:
        self._links = self._stack.enter_context(closing(Links()))
        until = time.monotonic() + self._limits.joining
        self._connect(until)
        result: JobResult | None = None
        while True:
            try:
                message = self._next_order()
            except Stopped:
                if result is None:
                    raise
                return result
            if isinstance(message, Plan):
                result, is_lost = self._start(message)
                if is_lost:
                    return result
            elif result is not None:
                if isinstance(message, Goodbye) and message.event is not None:
                    return Stopped(message.event, message.host).result(result)
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
                    is_cut_off=is_cut_off,
                    host_limits=self._limits,
                    clock=self._clock,
                )
            )
            return decided[0]

        ports = (plan.coordinator_port, plan.master_port)
        links = JobLinks(self._links, {self._link: COORDINATOR}, lambda _link, _message: None)
        address, key = self._place.coordinator, store_key_of(self._key, plan)
        here = JobHosts(placement, plan.job_id, address, ports, decide, links, key)
        result = local.run(job, self._screen.console(placement), show=self._screen.locate, hosts=here)
        failed = -1 if result.first_failure is None else result.first_failure.rank
        ranks = tuple(replace(one, reported=None, tail=one.tail if one.rank == failed else ()) for one in result.ranks)
        self._links.send(self._link, HostResult(ranks))
        return result, decided[0].has_lost_coordinator

    def _next_order(self) -> Plan | Refusal | Goodbye | LinkEnd:
        """Wait for what host 0 says next; tell it that this host is alive, and of a signal.

        Raises Stopped at a second signal, or if host 0 does not answer the first.
        """
        heard, next_ping, give_up = time.monotonic(), 0.0, math.inf
        stopped: Stopped | None = None
        while True:
            now = time.monotonic()
            if stopped is not None and now >= give_up:
                raise stopped
            if now >= heard + self._limits.silence:
                return LinkEnd(f"its launcher is silent for {now - heard:.0f} s")
            if now >= next_ping:
                next_ping = now + self._limits.ping
                self._links.send(self._link, Ping(time.time(), offset=self._clock.offset))
            try:
                messages = self._wait(self._links, next_ping)
            except Stopped as error:
                if stopped is not None:
                    raise
                stopped, give_up = error, now + self._limits.doubt
                self._links.send(self._link, Happened((error.event,)))
                continue
            for _, message in messages:
                heard = time.monotonic()
                if isinstance(message, Ping):
                    self._clock.compare(message, time.time())
                elif isinstance(message, Plan | Refusal | Goodbye | LinkEnd):
                    return message
