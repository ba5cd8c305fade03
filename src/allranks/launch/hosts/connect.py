"""Connect the launchers of a job's hosts: host 0 listens, the others look for it."""

from __future__ import annotations

import fcntl
import math
import os
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from allranks.launch.hosts.admission import proof_of
from allranks.launch.hosts.limits import HostLimits
from allranks.launch.hosts.links import LinkEnd, Links
from allranks.launch.hosts.messages import Admitted, Challenge, Hello, Message, Refusal
from allranks.launch.hosts.place import JOB_KEY, HostPlace
from allranks.launch.restarts import NotStarted

# Seconds until the first line about a wait, and between the next ones; between two tries; and for one try.
FIRST_NOTICE, NOTICE, RETRY, TRY = 5.0, 30.0, 0.1, 5.0
# ioctl(2): SIOCGIFFLAGS; the flags IFF_UP with IFF_RUNNING, and IFF_LOOPBACK.
_GET_FLAGS, _RUNNING, _LOOPBACK = 0x8913, 0x41, 0x8


@dataclass(frozen=True, slots=True)
class NoLink:
    """Why there is no connection to host 0; ``is_final`` and ``is_wrong_key`` as in `Refusal`."""

    why: str
    is_final: bool = False
    is_wrong_key: bool = False


Wait = Callable[[Links, float], list[tuple[int, Message | LinkEnd | None]]]


class HostsMissing(NotStarted):
    """Raised when the launchers of a job's hosts do not find each other."""


def listen(place: HostPlace) -> socket.socket:
    """Return the socket at which host 0 waits for the others. Raises HostsMissing if every port is taken."""
    why = ""
    for port in place.ports:
        try:
            if socket.has_dualstack_ipv6():
                return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=4096)
            return socket.create_server(("", port), backlog=4096)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
    numbers = ", ".join(map(str, place.ports))
    raise HostsMissing(
        f"host {socket.gethostname()}: cannot listen at port {numbers}: {why} ({place.evidence}).",
        remedy="Give a free port of host 0, the same on all hosts: --coordinator HOST:PORT. If another launcher of "
        "this job runs here, both take themselves for host 0: give each its own --host-rank.",
    )


def is_local_address(name: str) -> bool:
    """Return whether a name or address is of this host."""
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(name, None)}
    except socket.gaierror:
        return False
    for address in addresses:
        family = socket.AF_INET6 if ":" in str(address) else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((address, 0))
            except OSError:
                continue
            return True
    return False


def is_cut_off() -> bool:
    """Return whether no network of this host works: each interface is down, or has no cable."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return not any(_is_running(probe, name) for _, name in socket.if_nameindex())


def _is_running(probe: socket.socket, name: str) -> bool:
    """Return whether an interface that leads to other hosts works (netdevice(7))."""
    try:
        found = fcntl.ioctl(probe, _GET_FLAGS, struct.pack("16sH14x", name.encode(), 0))
    except OSError:
        return False  # it is gone
    flags = int(struct.unpack("16xH14x", found)[0])
    return flags & _RUNNING == _RUNNING and not flags & _LOOPBACK


def connect(
    links: Links,
    hello: Hello,
    place: HostPlace,
    limits: HostLimits,
    *,
    until: float,
    key: str,
    wait: Wait,
    note: Callable[[str], None],
) -> int:
    """Connect to host 0 and say hello; return the link. Raises HostsMissing, at the latest at the time ``until``.

    ``wait`` returns the messages that arrive until a time; ``note`` prints a line. If the launcher of the own job
    refuses this host for so long that it is no earlier job that ends, this host gives up.
    """
    notice, why, refused = time.monotonic() + FIRST_NOTICE, "", math.inf
    while (now := time.monotonic()) < until:
        for port in place.ports:
            if (left := until - time.monotonic()) <= 0:
                break
            found = _try(links, (place.coordinator, port), hello, key=key, wait=wait, seconds=min(TRY, left))
            if not isinstance(found, NoLink):
                if found[1]:
                    note(f"host {hello.name} waits: {found[1]}")
                return found[0]
            is_refused = found.is_final or found.is_wrong_key
            why, refused = found.why, min(refused, now) if is_refused else math.inf
            # An earlier job may still be ending at that port.
            if now >= refused + (limits.doubt if found.is_wrong_key else limits.silence):
                remedy = f"Set {JOB_KEY} to the same text on all hosts, or on none." if found.is_wrong_key else ""
                raise HostsMissing(f"host {hello.name}: {why}.", remedy=remedy)
            wait(links, 0.0)  # for a signal
        if now >= notice:
            notice = now + NOTICE
            note(f"host {hello.name} waits for host 0 at {place.coordinator}: {why}")
        wait(links, now + RETRY)
    ports = ", ".join(map(str, place.ports))
    raise HostsMissing(
        f"host {hello.name}: cannot reach host 0 at {place.coordinator}, port {ports}, within {limits.joining:g} s: "
        f"{why} ({place.evidence}).",
        remedy="Was allranks run started there? Has the name the same address on all hosts? Is the port open?",
    )


def _try(
    links: Links, address: tuple[str, int], hello: Hello, *, key: str, wait: Wait, seconds: float
) -> tuple[int, str] | NoLink:
    """Connect to a port of host 0 and say hello; return the link and why to wait, or why there is no link.

    ``seconds`` is how long to wait for the connection, and for each answer.
    """
    host, port = address
    try:
        sock = socket.create_connection(address, timeout=seconds)
    except socket.gaierror as error:
        return NoLink(f"the name {host} has no address here ({error.strerror})")
    except OSError as error:
        return NoLink(f"port {port}: {error.strerror or error}")
    link = links.add(sock)
    greeting = _first_message(links, link, wait, seconds)
    if not isinstance(greeting, Challenge):
        links.close_link(link)
        return NoLink(f"port {port}: what answers there is no launcher of allranks")
    links.send(link, replace(hello, proof=proof_of(key, greeting.nonce)))
    answer = _first_message(links, link, wait, seconds)
    if isinstance(answer, Admitted):
        return link, answer.text
    links.close_link(link)
    if isinstance(answer, Refusal):
        text = answer.text if answer.is_final else f"port {port}: {answer.text}"
        return NoLink(text, answer.is_final, answer.is_wrong_key)
    return NoLink(f"port {port}: the launcher there does not answer")


def _first_message(links: Links, link: int, wait: Wait, seconds: float) -> Message | LinkEnd | None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for which, message in wait(links, deadline):
            if which == link:
                return message
    return None
