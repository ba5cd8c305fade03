"""Receive the reports of the ranks' agents, on a datagram socket in a folder that only this user can open."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

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

LARGEST = 1 << 20
LONGEST_PATH = 90  # bytes; a socket's path may have 107
AgentReport = Joining | Joined | SaveReport | WaitReport | HangReport | RankFailing | RankFailed | RankLeft


@dataclass(frozen=True, slots=True)
class AgentStarted:
    """A report that the Python process ``pid`` sends the reports of the rank."""

    rank: int
    pid: int


class ControlSocket:
    """The control socket of one job. The ranks send to ``path``; ``close`` removes it."""

    def __init__(self) -> None:
        usual = tempfile.gettempdir()
        short = len(usual) + len("/allranks-12345678/control") <= LONGEST_PATH
        self._folder = tempfile.mkdtemp(prefix="allranks-", dir=usual if short else "/tmp")  # noqa: S108 - it is 0700
        self.path = os.path.join(self._folder, "control")
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._sock.bind(self.path)
        self.agents: dict[int, int] = {}  # rank -> the pid of the Python that reports for it

    def fileno(self) -> int:
        """Return the socket's descriptor, for a selector. It is readable when reports wait."""
        return self._sock.fileno()

    def reports(self) -> list[AgentReport]:
        """Return the reports since the last call, without waiting.

        Raises ValueError for a datagram that is not a report.
        """
        found: list[AgentReport] = []
        while True:
            try:
                data = self._sock.recv(LARGEST)
            except BlockingIOError:
                return found
            report = read(data)
            if isinstance(report, AgentStarted):
                self.agents[report.rank] = report.pid
            elif report is not None:
                found.append(report)

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


def read(data: bytes) -> AgentReport | AgentStarted | None:
    """Decode the report in a datagram. Return None for an unknown kind. Raises ValueError for invalid data."""
    try:
        fields = json.loads(data)
        rank, kind = int(fields["rank"]), fields["kind"]
        if kind == "started":
            return AgentStarted(rank, int(fields["pid"]))
        if kind == "sigterm":
            return SaveReport(rank, saves_on_sigterm=bool(fields["saves"]))
        if kind == "saved":
            return SaveReport(rank, step=int(fields["step"]))
        if kind == "waits":
            samples, waits, begun = (int(fields[name]) for name in ("samples", "waits", "begun"))
            return WaitReport(rank, samples, waits, begun, float(fields["period"]))
        if kind == "hang":
            culprits, lines = tuple(map(int, fields["culprits"])), tuple(map(str, fields["lines"]))
            return HangReport(rank, culprits, lines, is_over=bool(fields["is_over"]))
        if kind == "joining":
            return Joining(rank)
        if kind == "joined":
            return Joined(rank)
        if kind in ("left", "leaving") or (kind == "exiting" and not fields["failure"]):
            return _rank_left(rank, fields, has_ended=kind == "left")
        if kind == "failed":
            return RankFailed(Failure(**fields["failure"]), waits=bool(fields.get("waits", True)))
        if kind in ("failing", "exiting"):
            return RankFailing(Failure(**fields["failure"]), explains=bool(fields.get("explains")))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a report of an agent: {data[:200]!r}") from error
    return None


def _rank_left(rank: int, fields: Mapping[str, Any], *, has_ended: bool) -> RankLeft:
    failure = fields.get("failure")
    why, origin, where, unjoined = (str(fields.get(name, "")) for name in ("why", "origin", "where", "unjoined"))
    return RankLeft(
        rank,
        float(fields["time"]),
        Failure(**failure) if failure else None,
        int(fields.get("exit_code", 0)),
        why=why,
        origin=origin,
        where=where,
        has_ended=has_ended,
        unjoined=unjoined,
    )
