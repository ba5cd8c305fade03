"""Watch the ranks of other machines over TCP connections, which need no store and no Python thread that runs.

Each rank of another machine has one idle connection to rank 0. What the kernels do with it is what both ends learn:

- When a process ends, in whatever way, its kernel closes the connection: the other end learns of it in milliseconds.
- While a host answers, its kernel answers the other end's keepalive probes, one a second, even if the process is
  stopped or holds the GIL. A host that is off, or whose cable is cut, does not answer them.

In a world with more than ``MOST`` ranks on other machines, only the first rank of each machine is watched.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from allranks.errors import name_ranks

# After so many seconds without an answer a host is reported, and given up: before JAX ends the job by itself (91 s).
REPORT_AFTER, GIVE_UP_AFTER = 10.0, 60.0
# How many connections rank 0 may have: it has a limit of open files, often 1024.
MOST = 512
_PROBE_EVERY, _CONNECT = 1, 5.0
_IN_TIME = 3.0  # seconds; a host that has answered since is reachable
# The member tcpi_last_ack_recv of Linux's struct tcp_info: milliseconds since the other end has answered last.
_LAST_ANSWER = 56

Kind = Literal["closed", "silent", "answers", "lost"]


@dataclass(frozen=True, slots=True)
class PeerEvent:
    """An event of connections to these ranks.

    - ``closed``: the process has ended; its host answers.
    - ``silent``, ``lost``: the host has not answered for so many ``seconds``: to be reported, to be given up.
    - ``answers``: the host answers again, after so many seconds.
    """

    kind: Kind
    ranks: tuple[int, ...]
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PeerEndpoint:
    """Where rank 0 listens. ``secret`` keeps out connections of other jobs and programs."""

    addresses: tuple[str, ...]
    port: int
    secret: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def watched_ranks(machines: Sequence[str], *, most: int = MOST) -> tuple[int, ...]:
    """Return the ranks that have a connection to rank 0. ``machines`` has the machine of each rank, "" if unknown."""
    far = [rank for rank, machine in enumerate(machines) if "" != machine != machines[0] != ""]
    first = {machine: rank for rank, machine in reversed(list(enumerate(machines)))}
    return tuple(far if len(far) <= most else [rank for rank in far if first[machines[rank]] == rank][:most])


class SilenceStates:
    """Turn the silences of hosts into events: one when a host becomes silent, answers again, or is given up."""

    def __init__(self) -> None:
        self._silent: dict[int, float] = {}
        self._lost: set[int] = set()

    def update(self, silences: Mapping[int, float]) -> tuple[PeerEvent, ...]:
        """Return the events of ``silences``: for how many seconds the host of each rank has not answered."""
        silent, lost = (_beyond(silences, limit) for limit in (REPORT_AFTER, GIVE_UP_AFTER))
        found: tuple[tuple[Kind, Mapping[int, float]], ...] = (
            ("answers", {rank: was for rank, was in self._silent.items() if rank in silences and rank not in silent}),
            ("silent", {rank: seconds for rank, seconds in silent.items() if rank not in self._silent}),
            ("lost", {rank: seconds for rank, seconds in lost.items() if rank not in self._lost}),
        )
        self._silent = silent
        self._lost |= set(lost)
        return tuple(PeerEvent(kind, tuple(sorted(ranks)), max(ranks.values())) for kind, ranks in found if ranks)


def _beyond(silences: Mapping[int, float], limit: float) -> dict[int, float]:
    """Return the silences beyond a limit; and if there are any, those that are about to be: they began together."""
    if max(silences.values(), default=0.0) < limit:
        return {}
    return {rank: seconds for rank, seconds in silences.items() if seconds >= limit - 2.5 * _PROBE_EVERY}


def is_cut_off(event: PeerEvent, watched: int) -> bool:
    """Return whether none of several hosts answers: then it is this rank's own host that nobody reaches."""
    return event.kind != "closed" and len(event.ranks) == watched > 1


def describe_silence(event: PeerEvent, rank: int, hosts: Mapping[int, str], watched: int) -> str:
    """Return what ``event`` means, for a rank that has ``watched`` connections."""
    names = tuple(dict.fromkeys(hosts.get(one, "?") for one in event.ranks))
    noun, has, answers = ("host", "has", "answers") if len(names) == 1 else ("hosts", "have", "answer")
    who = f"{noun} {', '.join(names)} ({name_ranks(event.ranks)})"
    if event.kind == "answers":
        return f"{who} {answers} again after {event.seconds:.0f} s"
    if is_cut_off(event, watched):
        here = hosts.get(rank, "?")
        return f"no other host has answered for {event.seconds:.0f} s: host {here} is cut off from the network"
    return f"{who} {has} not answered for {event.seconds:.0f} s: the host is down, or the network to it"


class PeerConnections:
    """The connections of this rank, and the thread that watches them. ``on_event`` is called in that thread."""

    def __init__(self, rank: int, on_event: Callable[[PeerEvent], None]) -> None:
        self._rank, self._on_event = rank, on_event
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, socket.socket] = {}
        self._server: socket.socket | None = None
        self._endpoint, self._expected = PeerEndpoint((), 0, ""), frozenset[int]()
        self._wake, self._woken = os.pipe()
        self._thread = threading.Thread(target=self._run, name="allranks-peers", daemon=True)

    def listen(self, addresses: Sequence[str]) -> PeerEndpoint:
        """Listen for the connections of other ranks, of which rank 0 is reached at one of ``addresses``."""
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        self._server = socket.create_server(("", 0), family=family, backlog=MOST, dualstack_ipv6=both)
        return PeerEndpoint(tuple(addresses), self._server.getsockname()[1], secrets.token_hex(16))

    def watch(self, endpoint: PeerEndpoint, ranks: Sequence[int]) -> None:
        """Begin to watch: rank 0 these ranks, each of these ranks rank 0. Does nothing on the other ranks."""
        if (self._rank == 0 and not ranks) or (self._rank and self._rank not in ranks) or not _is_supported():
            self.stop()
            return
        self._endpoint, self._expected = endpoint, frozenset(ranks)
        os.register_at_fork(after_in_child=self._close)  # else a worker process would keep a connection open
        self._thread.start()

    def stop(self) -> None:
        """Close the connections, and wait until the thread has ended, if it does not just connect."""
        if self._thread.is_alive():
            os.write(self._woken, b".")
            self._thread.join(_PROBE_EVERY)
        self._close()

    @property
    def count(self) -> int:
        return len(self._connections)

    def reachable(self) -> set[int]:
        """Return the ranks whose process lives, and whose host answers. Any thread may call this."""
        found = set()
        for rank, connection in [*self._connections.items()]:
            with contextlib.suppress(OSError):  # it has closed meanwhile
                found |= {rank} if _silence(connection) < _IN_TIME else set()
        return found

    def _close(self) -> None:
        for one in (self._server, *self._connections.values()):
            if one is not None:
                one.close()
        self._server = None

    def _run(self) -> None:
        states = SilenceStates()
        self._selector.register(self._wake, selectors.EVENT_READ)
        if self._server is not None:
            self._selector.register(self._server, selectors.EVENT_READ)
        else:
            self._connect()
        while True:
            for key, _ in self._selector.select(_PROBE_EVERY):
                if key.fileobj == self._wake:
                    return
                if key.fileobj is self._server:
                    self._accept()
                elif kind := _end_of(key.fileobj):
                    self._drop(key.data, kind)
            for event in states.update({rank: _silence(one) for rank, one in self._connections.items()}):
                self._on_event(event)

    def _connect(self) -> None:
        """Connect to rank 0 at the first of its addresses that proves to be that of this job."""
        greeting = f"{self._endpoint.secret} {self._rank:10}".encode()
        for address in self._endpoint.addresses:
            with contextlib.suppress(OSError):
                connection = socket.create_connection((address, self._endpoint.port), timeout=_CONNECT)
                connection.sendall(greeting)
                if connection.recv(1) == b".":
                    self._add(0, connection)
                    return
                connection.close()

    def _accept(self) -> None:
        assert self._server is not None
        connection, _ = self._server.accept()
        connection.settimeout(_CONNECT)
        with contextlib.suppress(OSError, ValueError):
            secret, rank = connection.recv(43, socket.MSG_WAITALL).decode().split()
            if hmac.compare_digest(secret, self._endpoint.secret) and int(rank) in self._expected:
                connection.sendall(b".")
                self._add(int(rank), connection)
                return
        connection.close()

    def _add(self, rank: int, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
            connection.setsockopt(socket.IPPROTO_TCP, option, _PROBE_EVERY)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 127)  # the most: we count by ourselves
        self._connections[rank] = connection
        self._selector.register(connection, selectors.EVENT_READ, rank)

    def _drop(self, rank: int, kind: Kind) -> None:
        connection = self._connections.pop(rank)
        self._selector.unregister(connection)
        connection.close()
        self._on_event(PeerEvent(kind, (rank,), GIVE_UP_AFTER if kind == "lost" else 0.0))


def _is_supported() -> bool:
    return hasattr(socket, "TCP_INFO") and hasattr(socket, "TCP_KEEPIDLE")


def _end_of(connection: Any) -> Kind | None:
    """Return how a connection has ended, or None if it has not. (The other end never sends anything.)"""
    try:
        return "closed" if connection.recv(1) == b"" else None
    except BlockingIOError:
        return None
    except ConnectionResetError:
        return "closed"
    except OSError:
        return "lost"


def _silence(connection: socket.socket) -> float:
    """Return for how many seconds the kernel at the other end has answered no probe."""
    status = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_ANSWER + 4)
    milliseconds: int = struct.unpack_from("I", status, _LAST_ANSWER)[0]
    return milliseconds / 1000
