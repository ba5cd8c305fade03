"""Wait until all ranks have reached the address of the job, before JAX connects there.

If some ranks are missing, JAX ends the ranks that have connected, and does not name the missing ones. So rank 0 opens
the port, and the other ranks connect and send their rank. Then all of them learn which ranks are missing.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Mapping

from allranks.errors import name_ranks
from allranks.world.launcher_environment import Decision

_NAP, _LONGEST = 0.1, 1 << 20


def await_ranks(world_decision: Decision, *, timeout_seconds: float) -> None:
    """Wait until all ranks have connected to the address of the job. **Every rank must call it.**

    Raises BarrierTimeout, on every rank that has connected, after ``timeout_seconds`` seconds; it names the missing
    ranks. Does nothing if JAX itself finds the rendezvous.
    """
    if world_decision.address is None or world_decision.rank is None or world_decision.size is None:
        return
    host, _, port = world_decision.address.rpartition(":")
    until = time.monotonic() + timeout_seconds
    if world_decision.rank == 0:
        why = _gather_connections(int(port), world_decision.size, until)
    else:
        # Rank 0 needs a moment to tell, at the end of its patience.
        why = _connect_to_main(host.strip("[]"), int(port), world_decision.rank, until + timeout_seconds / 2 + 1)
    if why:
        raise world_decision.unmet(timeout_seconds, why)


def _gather_connections(port: int, size: int, until: float) -> str:
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    come: dict[int, socket.socket] = {}
    with contextlib.ExitStack() as stack:
        try:
            server = socket.create_server(("", port), family=family, backlog=size, dualstack_ipv6=both)
        except OSError as error:
            return f"rank 0 cannot listen there: {error.strerror}"
        stack.enter_context(server)
        while len(come) < size - 1 and (left := until - time.monotonic()) > 0:
            server.settimeout(left)
            try:
                channel, _ = server.accept()
            except TimeoutError:
                break
            stack.enter_context(channel)
            if (rank := _rank_of(channel, size)) is not None:
                come[rank] = channel
        missing = [rank for rank in range(1, size) if rank not in come]
        _send_result(come, missing)
    return f"{name_ranks(missing)} did not come" if missing else ""


def _rank_of(channel: socket.socket, size: int) -> int | None:
    """Return the rank that has connected; None if the client is not a rank of this job."""
    channel.settimeout(5.0)
    try:
        word = channel.recv(32).strip()
    except OSError:
        return None
    return int(word) if word.isdigit() and 0 < int(word) < size else None


def _send_result(come: Mapping[int, socket.socket], missing: list[int]) -> None:
    """Send the list of missing ranks to all ranks that have connected.

    They close their connections first, so that the port is free afterwards.
    """
    for channel in come.values():
        with contextlib.suppress(OSError):
            channel.sendall(json.dumps(missing).encode())
            channel.shutdown(socket.SHUT_WR)
    for channel in come.values():
        with contextlib.suppress(OSError):
            channel.recv(1)


def _connect_to_main(host: str, port: int, rank: int, until: float) -> str:
    why = "no try"
    while (left := until - time.monotonic()) > 0:
        try:
            with socket.create_connection((host, port), timeout=left) as channel:
                channel.sendall(f"{rank}\n".encode())
                told = b"".join(iter(lambda: channel.recv(_LONGEST), b""))
            missing = json.loads(told)
            return f"{name_ranks(missing)} did not come" if missing else ""
        except (OSError, ValueError) as error:  # rank 0 does not listen yet, or somebody else does
            why = getattr(error, "strerror", None) or str(error)
        time.sleep(min(_NAP, left))
    return f"rank 0 is not reached there: {why}"
