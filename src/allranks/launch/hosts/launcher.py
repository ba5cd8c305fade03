"""The launcher of one host of a job on several: what those of host 0 and of the other hosts have in common."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Protocol

from allranks.launch.console import Console
from allranks.launch.events import LocateRanks
from allranks.launch.hosts.limits import HostLimits
from allranks.launch.hosts.links import LinkEnd, Links
from allranks.launch.hosts.messages import (
    Hello,
    Message,
)
from allranks.launch.hosts.place import JOB_KEY, HostPlace
from allranks.launch.job import Job
from allranks.launch.placement import Placement
from allranks.launch.restarts import NotStarted, Stopped
from allranks.launch.result import JobResult
from allranks.launch.signals import Signals
from allranks.launch.stall import RankLocations


class JobRefused(NotStarted):
    """Raised when the hosts of a job cannot run it together: other versions, another program, wrong numbers."""


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


class Launcher:
    """What the launchers of all hosts of a job need."""

    def __init__(self, job: Job, place: HostPlace, hello: Hello, screen: Screen, limits: HostLimits) -> None:
        self._job, self._place, self._hello = job, place, hello
        self._screen, self._limits = screen, limits
        self._key = os.environ.get(JOB_KEY, "")
        self._stack = ExitStack()

    def __enter__(self) -> Launcher:
        self._signals = self._stack.enter_context(Signals())
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self) -> JobResult:
        raise NotImplementedError

    def note(self, text: str) -> None:
        """Print a line, which another host may have sent."""
        self._screen.note(f"allranks: {text}".replace("\n", "\\n"))

    def _wait(self, links: Links, until: float) -> list[tuple[int, Message | LinkEnd | None]]:
        """Wait for a message until a time; return it, or nothing. Raises Stopped at a signal."""
        timeout = 0.0 if links.has_unread else max(0.0, until - time.monotonic())
        select.select([links.fileno(), self._signals.fileno()], [], [], timeout)
        for event in self._signals.events():
            raise Stopped(event, self._hello.name)
        message = links.next()
        return [] if message is None else [message]
