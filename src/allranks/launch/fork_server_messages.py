"""Define the messages between launcher and fork server: frozen records over a pair of SOCK_SEQPACKET sockets.

A message is one packet of JSON. A ``Spawn``, and any message that is longer than a packet, is sent in an anonymous file
(memfd). The packet carries the file's descriptor and the descriptors of the rank's stdout and stderr.

Both sides send through an ``Outbox``, which never waits: if both waited until the other side reads, neither would.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

PACKET = 65536
# What the fork server ignores: a scheduler sends it to every process of a job, and the launcher decides what it means.
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# What programs handle: it is sent to the process of a rank alone. Any other signal is sent to its process group.
FOR_PROGRAMS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
_FD = struct.Struct("i")


@dataclass(frozen=True, slots=True)
class Preload:
    """Import what the target will import, or make a `Call`. Both are in JSON. The answer is ``Ready``."""

    target: str = ""
    cwd: str = ""
    call: str = ""


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a rank. The answer is ``Started``, and later ``Exited``; or only ``Exited`` if it cannot be started."""

    rank: int
    target: str
    cwd: str
    env: dict[str, str]


@dataclass(frozen=True, slots=True)
class Kill:
    """Send a signal to these ranks: SIGTERM to their processes, any other signal to their process groups.

    ``agents`` are the pids of the Python processes that report for the ranks, in the same order; 0 if unknown.
    """

    ranks: tuple[int, ...]
    signum: int
    agents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sweep:
    """Kill the processes of all ranks, and all their descendants. The answer is ``Swept``."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The ``loaded`` modules are imported.

    ``obstacle`` says why each rank must start its own interpreter; "" if this is not necessary.
    """

    loaded: tuple[str, ...]
    obstacle: str


@dataclass(frozen=True, slots=True)
class Started:
    """The rank's process has started, at ``when`` (Unix seconds)."""

    rank: int
    pid: int
    when: float


@dataclass(frozen=True, slots=True)
class Exited:
    """The rank's process has ended, at ``when``. ``peak_bytes`` is its peak resident memory in bytes."""

    rank: int
    wait_code: int
    when: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Swept:
    """No process of a rank lives, except the pids in ``stuck``, which could not be killed."""

    stuck: tuple[int, ...]


Message = Preload | Spawn | Kill | Sweep | Ready | Started | Exited | Swept
KINDS: dict[str, Callable[..., Message]] = {kind.__name__: kind for kind in get_args(Message)}


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets: the launcher's and the fork server's."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Outbox:
    """The messages to the other end of a socket, in order. Sending never waits.

    What the socket does not take is kept for ``flush``: call it when the socket is writable and ``is_empty`` is False.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._waiting: deque[tuple[bytes, tuple[int, ...]]] = deque()

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    def put(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Send one message, with file descriptors if it is a Spawn. The outbox closes them once they are sent.

        Raises BrokenPipeError if the other end has closed.
        """
        data = json.dumps({"message": type(message).__name__, **asdict(message)}).encode()
        if fds or len(data) > PACKET:
            body = os.memfd_create("allranks-message", os.MFD_CLOEXEC)
            with open(body, "wb", closefd=False) as file:
                file.write(data)
            data, fds = b"{}", (body, *fds)
        self._waiting.append((data, tuple(fds)))
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes now. Raises BrokenPipeError if the other end has closed."""
        while self._waiting:
            data, fds = self._waiting[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
            try:
                self._sock.sendmsg([data], rights, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionError as error:
                self.close()
                raise BrokenPipeError("the other end has closed") from error
            self._waiting.popleft()
            for fd in fds:
                os.close(fd)

    def close(self) -> None:
        """Drop the messages that are not sent."""
        for _, fds in self._waiting:
            for fd in fds:
                os.close(fd)
        self._waiting.clear()


def receive(sock: socket.socket, flags: int = 0) -> tuple[Message, list[int]] | None:
    """Return the next message with its descriptors, or None if the other end has closed.

    Raises BlockingIOError if ``flags`` forbid to wait and no message waits.
    """
    # Not socket.recv_fds: in Python 3.11 it drops the flags.
    data, control, _, _ = sock.recvmsg(PACKET, socket.CMSG_SPACE(3 * _FD.size), flags | socket.MSG_CMSG_CLOEXEC)
    fds = [fd for _level, kind, part in control if kind == socket.SCM_RIGHTS for (fd,) in _FD.iter_unpack(part)]
    if not data:
        return None
    if fds:
        with open(fds.pop(0), "rb") as file:
            file.seek(0)
            data = file.read()
    fields: dict[str, Any] = json.loads(data)
    kind = KINDS[fields.pop("message")]
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}), fds
