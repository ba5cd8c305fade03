"""Describe one start of a job on one of its hosts, for `allranks.launch.engines.local`."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from allranks.launch.events import Action, Event
from allranks.launch.hosts.connect import is_cut_off
from allranks.launch.hosts.coordinator import Coordinator
from allranks.launch.hosts.limits import DEFAULT, HostLimits
from allranks.launch.hosts.links import LinkEnd, Links
from allranks.launch.hosts.messages import Message
from allranks.launch.job import Job
from allranks.launch.limits import Limits, Phase
from allranks.launch.placement import Placement
from allranks.launch.result import Ending
from allranks.launch.saves import Saves

LOOPBACK = "127.0.0.1"


class Decider(Protocol):
    """Says what to do on this host: `Coordinator` or `Member`."""

    outbox: list[tuple[int, Message]]

    @property
    def phase(self) -> Phase: ...
    @property
    def failed_rank(self) -> int | None: ...
    @property
    def deadline(self) -> float | None: ...
    def on(self, event: Event, now: float) -> list[Action]: ...
    def receive(self, host: int, message: Message, now: float) -> list[Action]: ...
    def lose(self, host: int, why: str, now: float) -> list[Action]: ...
    def ending(self) -> Ending: ...


@dataclass(frozen=True, slots=True)
class Start:
    """What a decider needs to know. ``now`` is the time on the clock of its later calls, in seconds."""

    placement: Placement
    now: float
    limits: Limits
    cwd: str
    saves: Saves


class JobLinks:
    """The connections to the launchers of the other hosts, during one start.

    ``hosts`` maps links to the numbers of hosts. Messages of other links go to ``others``.
    """

    def __init__(
        self, links: Links, hosts: Mapping[int, int], others: Callable[[int, Message | LinkEnd | None], None]
    ) -> None:
        self._links, self._hosts, self._others = links, hosts, others
        self._link_of = {host: link for link, host in hosts.items()}

    def fileno(self) -> int:
        return self._links.fileno()

    def receive(self, decider: Decider, now: float) -> list[Action]:
        """Pass all messages that have arrived to the decider; return what to do."""
        actions: list[Action] = []
        for link, message in self._links.read():
            host = self._hosts.get(link)
            if host is None or isinstance(message, LinkEnd | None):
                self._others(link, message)
            if host is None or message is None:
                continue
            if isinstance(message, LinkEnd):
                actions += decider.lose(host, message.why, now)
            else:
                actions += decider.receive(host, message, now)
        return actions

    def flush(self, decider: Decider) -> None:
        """Send what the decider wants to send."""
        due, decider.outbox = decider.outbox, []
        for host, message in due:
            self._links.send(self._link_of[host], message)


@dataclass(frozen=True, slots=True)
class JobHosts:
    """The hosts of one start of a job.

    - ``address``, ``ports``: of host 0, for JAX's coordinator and for torch's store.
    - ``links``: the connections to the other hosts; None if there is no other host.
    - ``store_key``: the secret of the ranks of all hosts.
    """

    placement: Placement
    job_id: str
    address: str
    ports: tuple[int, ...]
    decide: Callable[[Start], Decider]
    links: JobLinks | None = None
    store_key: str = ""


def on_this_host(job: Job, ports: tuple[int, ...]) -> JobHosts:
    """Return the hosts of a job that runs on this host alone."""
    host = socket.gethostname()
    job_id = f"{host}-{os.getpid()}-{ports[0]}"
    placement = Placement((host,), (job.ranks,))
    return JobHosts(placement, job_id, LOOPBACK, ports, coordinator, store_key=secrets.token_hex(16))


def coordinator(start: Start, host_limits: HostLimits = DEFAULT) -> Coordinator:
    """Return the decider of host 0."""
    return Coordinator(
        start.placement,
        now=start.now,
        limits=start.limits,
        wall=time.time,
        is_cut_off=is_cut_off,
        host_limits=host_limits,
        cwd=start.cwd,
        saves=start.saves,
    )
