"""Exchange messages with the launcher of this rank. Standard library only, like `allranks_agent`."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import socket
import time
from collections.abc import Sequence
from typing import Any

import allranks_agent_failure as failures  # type: ignore[import-not-found]

SEND_SECONDS = 5.0
# Bytes of each text of a failure, if the whole does not fit into a datagram: about 200 kB, and JSON makes six bytes of
# some.
_LENGTHS = (8_000, 1_000, 100)
_FAR = 901  # where a spare descriptor is: the low ones are the program's
_spare: int | None = None


def keep_spare() -> None:
    """Keep a descriptor, so that a failure can be reported by a process that cannot open any more files."""
    global _spare
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    file = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    _spare = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, min(_FAR, most - 2) if most > 2 else 0)
    os.close(file)


def send(kind: str, **fields: Any) -> bool:
    """Send one datagram to the launcher; return whether it was sent. If not, print a line on stderr.

    The texts of a failure are shortened until they fit.
    """
    rank = int(os.environ["ALLRANKS_RANK"])
    message = {"kind": kind, "rank": rank, "pid": os.getpid(), "time": time.time(), **fields}
    failure = fields.get("failure")
    for most in (None, *(_LENGTHS if failure else ())):
        if most is not None:
            message["failure"] = failures.shorten(failure, most)
        try:
            _send_datagram(json.dumps(message).encode())
        except OSError as error:
            why = error
            if error.errno != errno.EMSGSIZE:
                break
        else:
            return True
    # Not through Python's stream: another thread may hold its lock.
    os.write(2, f"allranks: rank {rank}: cannot send {kind!r} to the launcher: {why}\n".encode())
    return False


def _send_datagram(data: bytes) -> None:
    with _new_socket() as channel:
        channel.settimeout(SEND_SECONDS)
        # Not sendto: to a socket without a peer, poll says at once that a full queue can be written, and Python spins.
        channel.connect(os.environ["ALLRANKS_CONTROL"])
        channel.send(data)


def _new_socket() -> socket.socket:
    global _spare
    try:
        return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    except OSError as error:
        if error.errno != errno.EMFILE or _spare is None:
            raise
        os.close(_spare)
        _spare = None
        return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def report_hang(text: str, culprits: Sequence[int], *, prints: bool, is_over: bool = False) -> bool:
    """Report a hang, or its end, to the launcher if there is one; return whether it prints that.

    ``prints``: the launchers of all hosts are to print it.
    """
    if "ALLRANKS_CONTROL" not in os.environ:
        return False
    lines = [line.rstrip() for line in text.splitlines() if line.strip()] if prints else []
    return send("hang", culprits=[*culprits], lines=lines, is_over=is_over) and prints


def suspended_ranks() -> tuple[int, ...]:
    """Return the ranks of the job, on any host, of which the launchers know that their processes are stopped."""
    try:
        with open(f"{os.environ['ALLRANKS_CONTROL']}.suspended") as file:
            return tuple(map(int, file.read().split()))
    except (KeyError, FileNotFoundError):
        return ()
