"""Receive the reports of the ranks' agents, on a datagram socket in a folder that only this user can open."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from allranks.errors import AllranksError
from allranks.failure import Failure
from allranks.launch.events import (
    HangReport,
    Joined,
    Joining,
    RankFailed,
    RankFailing,
    RankLeft,
    SaveReport,
    WaitReport,
)
from allranks.launch.placement import Placement
from allranks.launch.typed_json import parse, typed

LARGEST = 1 << 20
MOST_AT_ONCE = 1000  # datagrams: a process that sends without end must not keep the launcher from its other work
LONGEST_PATH = 90  # bytes; a socket's path may have 107
PREFIX, SOCKET, LAUNCHER = "allranks-", "control", "launcher"
_NAME = re.compile(PREFIX + "[a-z0-9_]{8}")
AgentReport = Joining | Joined | SaveReport | WaitReport | HangReport | RankFailing | RankFailed | RankLeft


class NoControlFolder(AllranksError):
    """Raised when there is no folder for temporary files that this user can write."""


def _parent_folder() -> str:
    usual = tempfile.gettempdir()
    is_short = len(usual) + len("/allranks-12345678/control") <= LONGEST_PATH
    return usual if is_short else "/tmp"  # noqa: S108 - the folder in it is 0700


def abandoned_folders() -> list[str]:
    """Return the folders that launchers of this user have left behind: they were killed, and nobody serves the socket.

    Folders of other users, and links, are left out.
    """
    return [path for path, is_served in _folders_of_launchers() if not is_served]


def launchers_here() -> list[int]:
    """Return the process ids of the launchers of this user that run on this machine."""
    found = []
    for path, is_served in _folders_of_launchers():
        if is_served:
            with suppress(OSError, ValueError), open(os.path.join(path, LAUNCHER)) as file:
                found.append(int(file.read(20)))
    return found


def _folders_of_launchers() -> Iterator[tuple[str, bool]]:
    """Yield the folders of launchers of this user, and whether the launcher serves the socket."""
    try:
        with os.scandir(_parent_folder()) as entries:
            named = [one for one in entries if _NAME.fullmatch(one.name)]
    except OSError:
        return
    for one in named:
        is_served = _is_served(one)
        if is_served is not None:
            yield one.path, is_served


def _is_served(entry: os.DirEntry[str]) -> bool | None:
    """Return whether a launcher of this user serves the socket in a folder; None if it is none, or is just made."""
    try:
        about = entry.stat(follow_symlinks=False)
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
            return None
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            probe.connect(os.path.join(entry.path, SOCKET))
    except ConnectionRefusedError:
        return False
    except OSError:
        return None
    return True


@dataclass(frozen=True, slots=True)
class AgentStarted:
    """A report that the Python process ``pid`` sends the reports of the rank."""

    rank: int
    pid: int


class ControlSocket:
    """The control socket of one job. The ranks send to ``path``; ``close`` removes it.

    ``placement``: reports of ranks that are not of this host, and failures of ranks that are not of the job, are
    refused (None: nothing is). ``refused`` counts the datagrams that are no reports of this job's ranks.
    """

    def __init__(self, placement: Placement | None = None) -> None:
        self._placement = placement
        self.refused, self._last_refused, self._next_note = 0, b"", 1
        try:
            self._folder = tempfile.mkdtemp(prefix=PREFIX, dir=_parent_folder())  # it is 0700
        except OSError as error:
            raise NoControlFolder(
                f"a folder for the socket of this launcher cannot be made: {error.strerror}.",
                remedy="Set TMPDIR to a folder that you can write to.",
            ) from error
        self.path = os.path.join(self._folder, SOCKET)
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        with open(os.path.join(self._folder, LAUNCHER), "w") as file:
            file.write(str(os.getpid()))
        self._sock.bind(self.path)
        self.agents: dict[int, int] = {}  # rank -> the pid of the Python that reports for it

    def fileno(self) -> int:
        """Return the socket's descriptor, for a selector. It is readable when reports wait."""
        return self._sock.fileno()

    def reports(self) -> list[AgentReport]:
        """Return the reports since the last call, without waiting. Datagrams that are no reports are counted."""
        found: list[AgentReport] = []
        for _ in range(MOST_AT_ONCE):
            try:
                data = self._sock.recv(LARGEST)
            except BlockingIOError:
                break
            try:
                report = read(data, self._placement)
            except ValueError:
                self.refused, self._last_refused = self.refused + 1, data
                continue
            if isinstance(report, AgentStarted):
                self.agents[report.rank] = report.pid
            elif report is not None:
                found.append(report)
        return found

    def refusal_note(self) -> str:
        """Return a line about the refused datagrams, at the 1st, 2nd, 4th, 8th ...; otherwise ""."""
        if self.refused < self._next_note:
            return ""
        while self._next_note <= self.refused:
            self._next_note *= 2
        return f"not a report of a rank, and ignored ({self.refused} so far): {self._last_refused[:60]!r}"

    def notify(self, rank: int) -> None:
        """Notify a rank that another rank has left. A rank that does not listen does not need this."""
        try:
            self._sock.sendto(b"left", f"{self.path}.{rank}")
        except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
            return

    def mark_failed(self) -> None:
        """Create the file that says that a rank has failed. Each rank checks for it at SIGTERM (``world.sigterm``)."""
        with open(f"{self.path}.failed", "wb"):
            pass

    def share_suspended(self, ranks: Sequence[int]) -> None:
        """Write which ranks of the job have a stopped process, for the hang watches (``allranks_agent_control``)."""
        with open(f"{self.path}.new", "w") as file:
            file.write(" ".join(map(str, ranks)))
        os.replace(f"{self.path}.new", f"{self.path}.suspended")

    def close(self) -> None:
        self._sock.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> ControlSocket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(data: bytes, placement: Placement | None = None) -> AgentReport | AgentStarted | None:
    """Decode the report in a datagram. Return None for an unknown kind. Raises ValueError for invalid data.

    ``placement``: as of ``ControlSocket``.
    """
    try:
        fields = typed(parse(data), dict)
        report = _read_fields(fields, typed(fields["rank"], int), typed(fields["kind"], str))
    except KeyError as error:
        raise ValueError(f"expected the field {error}, found {[*fields][:10]}") from error
    if placement is not None and report is not None:
        failure = getattr(report, "failure", None)
        others = {*getattr(report, "culprits", ()), *(() if failure is None else (failure.rank,))}
        if fields["rank"] not in placement.ranks or not all(0 <= rank < placement.size for rank in others):
            raise ValueError(f"expected ranks of this job, found {fields['rank']} and {sorted(others)}")
    return report


def _read_fields(fields: Mapping[str, Any], rank: int, kind: str) -> AgentReport | AgentStarted | None:
    if kind == "started":
        return AgentStarted(rank, typed(fields["pid"], int))
    if kind == "sigterm":
        return SaveReport(rank, saves_on_sigterm=typed(fields["saves"], bool))
    if kind == "saved":
        return SaveReport(rank, step=typed(fields["step"], int))
    if kind == "waits":
        samples, waits, begun = (typed(fields[name], int) for name in ("samples", "waits", "begun"))
        return WaitReport(rank, samples, waits, begun, typed(fields["period"], float))
    if kind == "hang":
        culprits, lines = typed(fields["culprits"], tuple[int, ...]), typed(fields["lines"], tuple[str, ...])
        return HangReport(rank, culprits, lines, is_over=typed(fields["is_over"], bool))
    if kind == "joining":
        return Joining(rank)
    if kind == "joined":
        return Joined(rank)
    if kind in ("left", "leaving") or (kind == "exiting" and not fields["failure"]):
        return _rank_left(rank, fields, has_ended=kind == "left")
    if kind == "failed":
        return RankFailed(typed(fields["failure"], Failure), waits=typed(fields.get("waits", True), bool))
    if kind in ("failing", "exiting"):
        explains = typed(fields.get("explains", False), bool)
        return RankFailing(typed(fields["failure"], Failure), explains=explains)
    return None


def _rank_left(rank: int, fields: Mapping[str, Any], *, has_ended: bool) -> RankLeft:
    why, origin, where, unjoined = (typed(fields.get(name, ""), str) for name in ("why", "origin", "where", "unjoined"))
    return RankLeft(
        rank,
        typed(fields["time"], float),
        typed(fields.get("failure"), Failure | None),
        typed(fields.get("exit_code", 0), int),
        why=why,
        origin=origin,
        where=where,
        has_ended=has_ended,
        unjoined=unjoined,
    )
