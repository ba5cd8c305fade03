"""Open the socket of a rank for ``allranks doctor job``, in a folder that only the rank's user can open."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allranks.errors import AllranksError
from allranks.hang.stacks import OURS

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]
# A question, and how long who asked has to send it and to take the answer, in seconds.
_LONGEST, _PATIENCE = 4096, 5.0


@dataclass(frozen=True, slots=True)
class Address:
    """The path of a rank's socket, and the parts of its name, ``<job>.<rank>.<pid>``."""

    path: Path
    job: str
    rank: int
    pid: int


def socket_folder() -> Path:
    """Return the folder of the sockets, which is the same for all processes of a user whatever TMPDIR is.

    Raises AllranksError if other users can write the folder.
    """
    path = Path(f"/tmp/allranks-{os.getuid()}")  # noqa: S108 - it is made for one user, and looked at
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise AllranksError(
            f"{path} is not a folder that only this user can open, so no rank of this machine can be queried.",
            remedy="Remove it.",
        )
    return path


def socket_name(job: str, rank: int, pid: int) -> Address:
    return Address(socket_folder() / f"{job}.{rank}.{pid}", job, rank, pid)


def known_addresses() -> list[Address]:
    """Return the addresses of this machine's ranks, sorted by job and rank; remove the sockets of ended ranks.

    Containers may share the folder: the process ids of their ranks mean nothing here.
    """
    found = []
    for path in socket_folder().iterdir():
        job, *numbers = path.name.split(".")
        if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
            continue
        address = Address(path, job, int(numbers[0]), int(numbers[1]))
        if Path(f"/proc/{address.pid}").exists() or _is_served(path):
            found.append(address)
        elif _is_socket(path):
            address.path.unlink(missing_ok=True)
    return sorted(found, key=lambda address: (address.job, address.rank))


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _is_served(path: Path) -> bool:
    """Return whether a process, maybe of another PID namespace, listens at a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.setblocking(False)
        try:
            channel.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # it is busy, or stopped: its queue of clients is full
            return True
    return True


def request(address: Address, question: Mapping[str, Any], *, timeout: float) -> dict[str, Any] | None:
    """Send a question to a rank, and return its answer; None without an answer within ``timeout`` seconds."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(timeout)
        try:
            channel.connect(str(address.path))
            channel.sendall(json.dumps(question).encode())
            channel.shutdown(socket.SHUT_WR)
            text = b"".join(iter(lambda: channel.recv(1 << 16), b""))
        except OSError:  # it is stopped, or has ended meanwhile
            return None
    return json.loads(text) if text else None


class Endpoint:
    """The socket of this rank.

    ``accept_one`` accepts one client, and answers it in a new thread because an answer may take long.
    """

    def __init__(self, at: Address, answer: Answer) -> None:
        self.at = at
        self._answer = answer
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        at.path.unlink(missing_ok=True)
        self._sock.bind(str(at.path))
        self._sock.listen()
        self._sock.setblocking(False)

    def fileno(self) -> int:
        """Return the socket's descriptor for a selector; it is readable when a client connects."""
        return self._sock.fileno()

    def accept_one(self) -> None:
        try:
            channel, _ = self._sock.accept()
        except BlockingIOError:  # who knocked has left
            return
        threading.Thread(target=self._serve_client, args=(channel,), name=f"{OURS}-door", daemon=True).start()

    def close(self) -> None:
        self._sock.close()
        self.at.path.unlink(missing_ok=True)

    def _serve_client(self, channel: socket.socket) -> None:
        with channel:
            channel.settimeout(_PATIENCE)
            try:
                question = b"".join(iter(lambda: channel.recv(_LONGEST), b""))
                channel.sendall(json.dumps(self._answer(json.loads(question))).encode())
            except (OSError, ValueError):  # who asked has left, or is no doctor
                return
