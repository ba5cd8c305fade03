"""Exchange messages with the launcher of this rank. Standard library only, like `allranks_agent`."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence

SEND_SECONDS = 5.0


def send(kind: str, **fields: object) -> bool:
    """Send one datagram to the launcher; return whether it was sent. If not, print a line on stderr."""
    rank = int(os.environ["ALLRANKS_RANK"])
    message = {"kind": kind, "rank": rank, "pid": os.getpid(), "time": time.time(), **fields}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.settimeout(SEND_SECONDS)
            channel.sendto(json.dumps(message).encode(), os.environ["ALLRANKS_CONTROL"])
    except OSError as error:
        # Not through Python's stream: another thread may hold its lock.
        os.write(2, f"allranks: rank {rank}: cannot send {kind!r} to the launcher: {error}\n".encode())
        return False
    return True


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
