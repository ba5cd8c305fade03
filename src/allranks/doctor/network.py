"""Make the report rows about interfaces, the host's name, proxies and connections from measured values. No I/O."""

from __future__ import annotations

import ipaddress
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from allranks.doctor.hosts import format_duration
from allranks.findings import Row, error, not_determined, not_seen, ok, warning

_MOST = 4
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")


@dataclass(frozen=True, slots=True)
class NetworkInterface:
    """A network interface. ``speed`` is in Mbit/s; 0 if the driver does not report it."""

    name: str
    up: bool
    mtu: int
    addresses: tuple[str, ...]
    speed: int = 0

    def __str__(self) -> str:
        speed = f", {self.speed / 1000:g} Gbit/s" if self.speed else ""
        return f"{self.name} {' '.join(self.addresses)} (mtu {self.mtu}{speed})"


@dataclass(frozen=True, slots=True)
class NameLookup:
    """The addresses of a host name, or why there are none (``trouble``). ``late``: no answer arrived in time."""

    name: str
    addresses: tuple[str, ...] = ()
    trouble: str = ""
    seconds: float = 0.0
    late: bool = False


@dataclass(frozen=True, slots=True)
class ConnectionAttempt:
    """The result of one host's attempt to reach another at an address: the round trip in seconds, or the error."""

    source: str
    target: str
    address: str
    seconds: float = 0.0
    trouble: str = ""


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def is_local(address: str) -> bool:
    """Return whether an address is valid only on this link or machine, so that it is not routed."""
    one = ipaddress.ip_address(address.partition("%")[0])
    return one.is_loopback or one.is_link_local


def reachable_addresses(interfaces: Sequence[NetworkInterface]) -> tuple[str, ...]:
    """Return the addresses at which other hosts may reach this host."""
    return tuple(a for one in interfaces if one.up for a in one.addresses if not is_local(a))


def interfaces_row(interfaces: Sequence[NetworkInterface], environ: Mapping[str, str], hosts: int) -> Iterator[Row]:
    used = [one for one in interfaces if one.up and any(not is_local(address) for address in one.addresses)]
    if used:
        yield ok("interfaces", *map(str, used[:_MOST]), *_and_more(len(used)))
    elif hosts > 1:
        remedy = "Other hosts cannot reach this one: see `ip address`, and the network of the container."
        yield error("interfaces", "none is up with an address, except the loopback", remedy=remedy)
    else:
        yield not_seen("interfaces", "none but the loopback: ranks of this machine can talk, other machines cannot")
    for variable in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        if variable in environ:
            yield _interface_variable_row(variable, environ[variable], [one.name for one in interfaces if one.up])


def _interface_variable_row(variable: str, value: str, names: Sequence[str]) -> Row:
    """Return a report row that says whether the interfaces in a variable exist.

    For NCCL, the variable holds prefixes of names; ``=`` before them asks for exact names, and ``^`` excludes them.
    """
    topic = variable
    exact = not variable.startswith("NCCL") or value.lstrip("^").startswith("=")
    words = value.lstrip("^").lstrip("=").split(",") if variable.startswith("NCCL") else value.split(",")
    fit = [name for name in names if any(name == word if exact else name.startswith(word) for word in words)]
    left = [name for name in names if name not in fit] if value.startswith("^") else fit
    if left:
        return ok(topic, f"{value}: leaves {', '.join(left)}")
    return error(
        topic, f"{value}: no such interface is up; found {', '.join(names)}", remedy="Correct it, or unset it."
    )


def _and_more(number: int) -> list[str]:
    return [f"and {number - _MOST} more"] if number > _MOST else []


def hostname_row(
    name_lookup: NameLookup, host_addresses: Sequence[str], host_count: int, *, has_interface_variable: bool
) -> Row:
    """Return a report row that says whether the host's name resolves to one of its addresses.

    Gloo and torch's rendezvous need that. ``host_addresses`` are the host's addresses. ``has_interface_variable``:
    GLOO_SOCKET_IFNAME says instead which interface to use. A common fault: /etc/hosts maps the host's name to the
    loopback, so other hosts connect to 127.0.1.1.
    """
    topic, name = "host name", name_lookup.name
    remedy = (
        f"Give {name} its address in /etc/hosts or DNS, or name the interface: GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME."
    )
    if name_lookup.late:
        told = f"looking up {name} took more than {name_lookup.seconds:.0f} s"
        return error(topic, told, remedy="Check /etc/resolv.conf.")
    if not name_lookup.addresses:
        told = f"{name} does not resolve: {name_lookup.trouble}"
        return (
            error(topic, told, remedy=remedy)
            if host_count > 1
            else warning(topic, told, "gloo needs it", remedy=remedy)
        )
    told = f"{name} is {', '.join(name_lookup.addresses[:_MOST])}"
    if name_lookup.seconds > 1:
        told += f", which took {format_duration(name_lookup.seconds)}"
    if all(map(is_loopback, name_lookup.addresses)):
        if host_count > 1 and has_interface_variable:
            return warning(topic, f"{told}: other hosts would connect to themselves, except with torch", remedy=remedy)
        if host_count > 1:
            return error(topic, f"{told}: other hosts would connect to themselves", remedy=remedy)
        return ok(topic, f"{told}, the loopback: it works on this machine; other hosts would connect to themselves")
    if not set(name_lookup.addresses) & set(host_addresses):
        return warning(topic, f"{told}, which is no address of this machine", remedy=remedy)
    return ok(topic, told, margin=-name_lookup.seconds)


def proxies_row(environ: Mapping[str, str]) -> Row:
    """Return a report row that says whether a proxy is set that gRPC would use between the ranks.

    JAX's coordination service uses gRPC. Source: jax/_src/distributed.py, which warns that initialize() may hang.
    """
    found = [name for name in environ if name.lower() in _PROXIES and environ[name]]
    if not found:
        return not_seen("proxies", "no variable names one")
    spared = environ.get("no_proxy") or environ.get("NO_PROXY") or environ.get("no_grpc_proxy") or ""
    told = f"{', '.join(found)} set; no_proxy is {spared or 'not set'}"
    remedy = "If jax.distributed.initialize() hangs: unset them, or name the hosts of the job in no_proxy."
    return warning("proxies", told, remedy=remedy)


def infiniband_row(ports: Mapping[str, str]) -> Row:
    """Return the report row about InfiniBand adapters; ``ports`` maps their names to their states."""
    if not ports:
        return not_seen("InfiniBand", "no adapter in /sys/class/infiniband")
    active = [name for name, state in ports.items() if state == "ACTIVE"]
    down = [f"{name} {state}" for name, state in ports.items() if state != "ACTIVE"]
    told = f"{len(active)} of {len(ports)} ports are ACTIVE"
    if down:
        return warning("InfiniBand", told, ", ".join(down[:_MOST]), remedy="NCCL leaves these out: see ibstat.")
    return ok("InfiniBand", told, margin=float(len(active)))


def hosts_to_reach(host_number: int, size: int, max_hosts: int = 16) -> tuple[int, ...]:
    """Return the numbers of the hosts that host ``host_number`` of ``size`` hosts tries to reach.

    These are all other hosts, or, beyond ``max_hosts`` hosts, those 1, 2, 4, 8 ... after it.
    """
    if size <= max_hosts:
        return tuple(other for other in range(size) if other != host_number)
    steps = [1 << bit for bit in range(size.bit_length()) if 1 << bit < size]
    return tuple((host_number + step) % size for step in steps)


def reach_row(attempts: Sequence[ConnectionAttempt], host_count: int) -> Row | None:
    """Return the report row that says which hosts reach which by TCP; None if there is only one host.

    A host counts as reached if another host has connected to one of its addresses.
    """
    if host_count < 2:
        return None
    pairs: dict[tuple[str, str], list[ConnectionAttempt]] = {}
    for one in attempts:
        pairs.setdefault((one.source, one.target), []).append(one)
    if not pairs:
        return not_determined("reach", "no host offered an address")
    lost = {pair: tries for pair, tries in pairs.items() if all(one.trouble for one in tries)}
    if lost:
        told = [
            f"host {source} does not reach host {target}: "
            + "; ".join(f"{one.address}: {one.trouble}" for one in tries)
            for (source, target), tries in list(lost.items())[:_MOST]
        ]
        remedy = "A firewall, or another network: open all TCP ports between the hosts of a job."
        return error("reach", *told, *_and_more(len(lost)), remedy=remedy)
    best = {pair: min(one.seconds for one in tries if not one.trouble) for pair, tries in pairs.items()}
    slowest = max(best, key=lambda pair: best[pair])
    median = format_duration(statistics.median(best.values()))
    told = [f"{len(best)} ways between {host_count} hosts by TCP, {median} there and back"]
    if len(best) > 1:
        told[0] += f"; the longest {format_duration(best[slowest])}, from host {slowest[0]} to {slowest[1]}"
    closed = sorted({f"{one.address} of host {one.target} ({one.trouble})" for one in attempts if one.trouble})
    if closed:
        told.append(f"not at {'; '.join(closed[:_MOST])}: name the interface to be used, NCCL_SOCKET_IFNAME")
    return ok("reach", *told)


def store_row(seconds_by_host: Mapping[str, float], store_name: str) -> Row:
    """Return the report row that says how long the ranks' store takes to write and read a value.

    ``seconds_by_host`` maps hosts to seconds; ``store_name`` names the store.
    """
    host = max(seconds_by_host, key=lambda name: seconds_by_host[name])
    seconds = seconds_by_host[host]
    told = f"{store_name}: a value is put and read back in {format_duration(seconds)}"
    told += f" on host {host}, the slowest of {len(seconds_by_host)}" if len(seconds_by_host) > 1 else ""
    if seconds > 0.2:
        return warning(
            "store", told, remedy="Every call of the world takes a few round trips: put rank 0 closer to the others."
        )
    return ok("store", told)
