"""How a JAX rank that has ended half-closes its connections, while gloo closes some of them itself."""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Iterator
from types import ModuleType

import pytest
from ranks import AGENT


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(AGENT))
    return importlib.import_module("allranks_agent_jax")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def endpoint(server: socket.socket) -> tuple[bytes, int]:
    host, port = server.getsockname()
    return socket.inet_aton(host), port


def pair(listener: socket.socket) -> tuple[socket.socket, socket.socket]:
    one = socket.create_connection(listener.getsockname())
    return one, listener.accept()[0]


def test_connections_with_a_listener_are_half_closed_and_no_others(agent: ModuleType, listener: socket.socket) -> None:
    """Both ends are ours here, so both read the end; what was sent before arrives; the other connection lives."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        (one, other), (near, far) = pair(listener), pair(stranger)
        with one, other, near, far:
            one.sendall(b"sent before")
            agent._half_close({endpoint(listener)})
            assert (other.recv(64), other.recv(64), one.recv(64)) == (b"sent before", b"", b"")
            near.sendall(b"alive")
            assert far.recv(64) == b"alive"


@pytest.mark.parametrize("takes_its_number", [False, True])
def test_a_connection_that_is_closed_meanwhile_keeps_nobody_from_the_others(
    agent: ModuleType, listener: socket.socket, monkeypatch: pytest.MonkeyPatch, takes_its_number: bool
) -> None:
    """What another thread closes just before it is held is no error, nor is a file that has its number by then."""
    one, other, *kept = [end for _ in range(3) for end in pair(listener)]
    another = os.open(os.devnull, os.O_RDONLY)
    hold, number = os.dup, one.fileno()

    def hold_too_late(descriptor: int) -> int:
        if descriptor == number:
            one.close()
            other.close()
            if takes_its_number:
                os.dup2(another, number)
        return hold(descriptor)

    monkeypatch.setattr(os, "dup", hold_too_late)
    agent._half_close({endpoint(listener)})
    assert [end.recv(1) for end in kept] == [b""] * 4
    for end in kept:
        end.close()
    os.close(another)
    if takes_its_number:
        os.close(number)


def test_a_connection_that_the_peer_has_reset_is_no_error(agent: ModuleType, listener: socket.socket) -> None:
    """Between the table of connections and shutdown the peer may reset one: ENOTCONN."""
    one, other = pair(listener)
    with one:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        other.close()
        with pytest.raises(ConnectionResetError):
            one.recv(1)
        agent._send_no_more(one.fileno())
        assert one.fileno() != -1  # still the program's
