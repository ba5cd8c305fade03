"""Describe a job for an engine (Slurm, SSH, Kubernetes, ...), and what every engine's client can do with it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from allranks.errors import AllranksError
from allranks.program import PREEMPTED

# Names of objects in Kubernetes, of hosts and of cloud resources: RFC 1123.
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


class EngineFailed(AllranksError):
    """Raised when an engine refuses a job, cannot be reached, or does not know a job."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as ``allranks submit`` was given it.

    - ``name``: an RFC 1123 label, with which the engine lists the job.
    - ``ranks``: ranks of each host; None: one per accelerator (``-n auto``).
    - ``hosts``: the number of hosts, the largest of an elastic job. ``least``: the smallest.
    - ``options``: the options for ``allranks run``, with ``-n``, without those about hosts.
    - ``command``: the script and its arguments (with ``-m`` or ``--`` before them).
    - ``folder``: the working folder, on the host that submits. ``environment``: variables to set on every host.
    - ``grace``: seconds that the ranks have between SIGTERM and SIGKILL.
    - ``preempt_code``: the exit code of a job that was preempted and has saved.
    """

    name: str
    ranks: int | None
    hosts: int
    least: int
    options: tuple[str, ...]
    command: tuple[str, ...]
    folder: str
    environment: Mapping[str, str] = field(default_factory=dict)
    grace: float = 30.0
    preempt_code: int = PREEMPTED

    def run(self, launcher: tuple[str, ...], *host_options: str) -> tuple[str, ...]:
        """Return the command of one host: ``launcher`` and ``run`` with these options about hosts."""
        return (*launcher, "run", *host_options, *self.options, *self.command)

    def range(self) -> tuple[str, ...]:
        """Return the option for an elastic number of hosts, or nothing if the number is fixed."""
        return () if self.least == self.hosts else ("--hosts", f"{self.least}:{self.hosts}")


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job in ``allranks jobs ls``. ``state`` is the engine's own word."""

    id: str
    name: str
    state: str
    hosts: str


class Engine(Protocol):
    """A client of one engine, with one profile. The engine keeps the state of jobs; the client has none.

    A job is referred to by the part of its id behind the first colon (``123`` of ``slurm:123``). Every call raises
    EngineFailed if the engine cannot be reached, and for a job that the engine does not know.
    """

    def preview(self, job: Submission) -> str:
        """Return what ``submit`` would run or apply, as text. Nothing is run."""

    def submit(self, job: Submission, report: Callable[[str], None]) -> int | None:
        """Start the job, and call ``report`` with its reference as soon as it is known.

        Return None when the engine has the job. A client that stays with its job returns the job's exit code.
        """

    def jobs(self) -> list[JobRow]:
        """Return the jobs of this user that ``allranks submit`` has started, as far as the engine remembers."""

    def logs(self, reference: str, *, follow: bool) -> Iterator[str]:
        """Yield the lines of all hosts of a job; with ``follow``, until the job ends."""

    def wait(self, reference: str) -> int:
        """Wait for the end of a job, and return its exit code."""

    def cancel(self, reference: str) -> None:
        """End a job: its ranks get SIGTERM first."""


def is_label(text: str) -> bool:
    """Return whether a text is an RFC 1123 label: lower-case letters, digits, ``-``, at most 63."""
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None


def label_of(text: str) -> str:
    """Convert a text to an RFC 1123 label of at most 30 characters."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:30].strip("-") or "job"


def exports(environment: Mapping[str, str]) -> list[str]:
    """Return shell lines that set these variables."""
    return [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
