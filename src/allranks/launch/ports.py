"""Reserve the ports of a job, from before its ranks start until it has ended.

Each port is bound here, but nobody listens on it. On Linux, a process that looks for a free port then does not get this
one. But a rank can bind it and listen, because both sides set SO_REUSEADDR (torch's store) or SO_REUSEPORT (gRPC in
JAX's coordination service). So the port is never free, and no rank finds it taken.
"""

from __future__ import annotations

import socket
from types import TracebackType


class ReservedPorts:
    """``count`` TCP ports of the loopback address, reserved until ``close`` (or the end of a ``with``)."""

    def __init__(self, count: int, address: str = "127.0.0.1") -> None:
        self._sockets = [_reserve_port(address) for _ in range(count)]
        self.numbers: tuple[int, ...] = tuple(sock.getsockname()[1] for sock in self._sockets)

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()

    def __enter__(self) -> ReservedPorts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _reserve_port(address: str) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind((address, 0))
    return sock
