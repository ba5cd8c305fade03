"""Let a job whose address is a loopback address listen on that address alone.

Otherwise torch's store and JAX's coordinator listen on all interfaces, and gloo on that of the host's name. None of
them has authentication, and in such a job no other machine needs them. A rank that joins by an address of another kind
(a host's name, which may be a loopback address on this host only) is left as it is.
"""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

INTERFACE = "lo"
_BIND, _BIND_ARGUMENT = "coordinator_bind_address", 5  # of State.initialize: its place behind the address


class _Process:
    """What this process has done: `is_local` once it has joined by a loopback address."""

    is_local = False


def is_loopback(address: str) -> bool:
    """Return whether a host, or a host and a port, is written as a loopback address."""
    host = address.removeprefix("[").partition("]")[0] if "[" in address else address
    host = host if host.count(":") > 1 else host.partition(":")[0]
    return host in ("localhost", "::1") or host.startswith("127.")


def bind_torch_gloo(address: str) -> None:
    """Let torch's gloo listen on the loopback interface, if the ranks join at a loopback address. Call before that."""
    if is_loopback(address):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", INTERFACE)


def bind_torch_store(rendezvous: ModuleType) -> None:
    """Let torch's store listen on the loopback address alone, if that is its address. May be called again."""
    make = rendezvous.TCPStore
    if hasattr(make, "__wrapped__"):
        return

    @functools.wraps(make)
    def make_store(*args: Any, **kwargs: Any) -> Any:
        host = str(kwargs.get("host_name", ""))
        if kwargs.get("is_master") and is_loopback(host):
            listener = _listener_at(host, kwargs["port"])
            if listener is not None:
                kwargs["port"] = listener.getsockname()[1]
                kwargs["master_listen_fd"] = listener.detach()
        return make(*args, **kwargs)

    rendezvous.TCPStore = make_store  # type: ignore[attr-defined]


def _listener_at(host: str, port: int) -> socket.socket | None:
    """Return a socket that listens at the first address of a host. None if it cannot: then torch says why itself."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind)
    except OSError:
        return None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(socket.SOMAXCONN)
    except OSError:
        listener.close()
        return None
    return listener


def jax_bind_address(address: str) -> str | None:
    """Return where JAX's coordinator is to listen: at its address if that is a loopback address, or None for JAX's
    default. The user's setting wins.
    """
    _Process.is_local = is_loopback(address)
    return address if _Process.is_local and "JAX_COORDINATOR_BIND_ADDRESS" not in os.environ else None


def with_bind_address(
    address: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the arguments of JAX's State.initialize with the address at which the coordinator is to listen.

    `address` is that of the coordinator; `args` are the positional arguments behind it.
    """
    bind = jax_bind_address(address)
    if bind is None or kwargs.get(_BIND) is not None:
        return args, kwargs
    if len(args) <= _BIND_ARGUMENT:
        return args, {**kwargs, _BIND: bind}
    return [*args[:_BIND_ARGUMENT], args[_BIND_ARGUMENT] or bind, *args[_BIND_ARGUMENT + 1 :]], kwargs


def bind_jax_gloo(bridge: ModuleType) -> None:
    """Let the gloo of JAX's CPU devices listen on the loopback interface, in a process that joined by it."""
    library: Any = bridge._jax
    make = library.make_gloo_tcp_collectives

    @functools.wraps(make)
    def make_collectives(*args: Any, **kwargs: Any) -> Any:
        if _Process.is_local and len(args) < 2:
            kwargs.setdefault("interface", INTERFACE)
        return make(*args, **kwargs)

    library.make_gloo_tcp_collectives = make_collectives
