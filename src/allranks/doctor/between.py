"""Probe what involves several hosts: their clocks, connections and shared folders.

The first rank of each host does this. Everything has a deadline. A host that does not answer becomes a row of the
report.
"""

from __future__ import annotations

import json
import secrets
import select
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from allranks.doctor.child import abandon_process, run_probe
from allranks.doctor.disk import SeenFolder
from allranks.doctor.network import ConnectionAttempt
from allranks.errors import KeyTimeout
from allranks.world.store import KeyValueStore

Wall = Callable[[], float]
_TURNS, _PINGS, _PUTS = 7, 5, 10
_LONGEST_NAME = 64


def query_clock(
    store: KeyValueStore, host_number: int, *, wall_time: Wall, timeout_seconds: float
) -> list[tuple[float, float, float]]:
    """Query the main host's time a few times; return (sent, answered, received) of each query that was answered.

    ``wall_time`` returns the time of this host. ``timeout_seconds`` is in seconds. The first missing answer ends the
    queries.
    """
    samples = []
    try:
        for turn in range(_TURNS):
            request = wall_time()
            store.set(f"doctor/time/{host_number}/{turn}/asks", b"1")
            answered = float(store.wait(f"doctor/time/{host_number}/{turn}/says", timeout_seconds))
            samples.append((request, answered, wall_time()))
    except KeyTimeout:
        return samples
    return samples


def serve_clock(store: KeyValueStore, host_numbers: Sequence[int], *, wall_time: Wall, timeout_seconds: float) -> None:
    """Answer the clock queries of all other hosts, one host after the other, with the time of this host."""
    for client in host_numbers:
        for turn in range(_TURNS):
            key = f"doctor/time/{client}/{turn}"
            try:
                store.wait(f"{key}/asks", timeout_seconds)
            except KeyTimeout:
                break
            store.set(f"{key}/says", repr(wall_time()).encode())
            store.delete(f"{key}/asks")


def measure_store(store: KeyValueStore, host_number: int) -> float:
    """Return the median time, in seconds, to write a value to the ranks' store and read it back."""
    took = []
    for turn in range(_PUTS):
        began = time.perf_counter()
        store.set(f"doctor/put/{host_number}", str(turn).encode())
        store.get(f"doctor/put/{host_number}")
        took.append(time.perf_counter() - began)
    store.delete(f"doctor/put/{host_number}")
    return statistics.median(took)


class EchoServer:
    """A TCP server on this host.

    It sends the host's name to a client that knows the token, and echoes what it receives.
    """

    def __init__(self, host: str, token: str) -> None:
        self._host = host.encode()[:_LONGEST_NAME].ljust(_LONGEST_NAME)
        self._token = token.encode()
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        self._server = socket.create_server(("", 0), family=family, backlog=64, dualstack_ipv6=both)
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept_clients, name="allranks-doctor-echo", daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _accept_clients(self) -> None:
        while True:
            try:
                channel, _ = self._server.accept()
            except OSError:  # closed
                return
            threading.Thread(
                target=self._answer_client, args=(channel,), name="allranks-doctor-echo", daemon=True
            ).start()

    def _answer_client(self, channel: socket.socket) -> None:
        with channel:
            channel.settimeout(5.0)
            try:
                if channel.recv(len(self._token), socket.MSG_WAITALL) != self._token:
                    return
                channel.sendall(self._host)
                while byte := channel.recv(1):
                    channel.sendall(byte)
            except OSError:  # who asked has left
                return


@dataclass(frozen=True, slots=True)
class EchoTarget:
    """The echo port of another host: the host's addresses, the port, and the token that a client must send."""

    host: str
    addresses: tuple[str, ...]
    port: int
    token: str


def reach_hosts(
    host_name: str, echo_targets: Sequence[EchoTarget], *, timeout_seconds: float
) -> list[ConnectionAttempt]:
    """Try to connect to all addresses of other hosts, concurrently, and return the results."""
    tries = [(target, address) for target in echo_targets for address in target.addresses]
    if not tries:
        return []
    with ThreadPoolExecutor(max_workers=16) as pool:
        return list(pool.map(lambda one: _connect_to_address(host_name, one[0], one[1], timeout_seconds), tries))


def _connect_to_address(me: str, target: EchoTarget, address: str, patience: float) -> ConnectionAttempt:
    try:
        with socket.create_connection((address, target.port), timeout=patience) as channel:
            channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            channel.sendall(target.token.encode())
            name = channel.recv(_LONGEST_NAME, socket.MSG_WAITALL).decode(errors="replace").strip()
            if name != target.host[:_LONGEST_NAME]:
                return ConnectionAttempt(
                    me, target.host, address, trouble=f"host {name} answers there" if name else "a stranger"
                )
            took = []
            for _ in range(_PINGS):
                began = time.perf_counter()
                channel.sendall(b"x")
                channel.recv(1)
                took.append(time.perf_counter() - began)
            return ConnectionAttempt(me, target.host, address, seconds=statistics.median(took))
    except TimeoutError:
        return ConnectionAttempt(me, target.host, address, trouble=f"no answer within {patience:g} s")
    except OSError as error:
        return ConnectionAttempt(me, target.host, address, trouble=error.strerror or str(error))


class FolderMarker:
    """A marker file that other hosts look for. A separate process holds it until ``answers`` is called."""

    def __init__(self, folder: str, *, patience: float) -> None:
        self.token = secrets.token_hex(8)
        self.locks, self.trouble = False, ""
        command = [
            sys.executable,
            "-P",
            str(Path(__file__).with_name("shared_disk_probe.py")),
            "hold",
            folder,
            self.token,
        ]
        pipe = subprocess.PIPE
        # Unbuffered: select() must see what readline() has not taken.
        self._process = subprocess.Popen(
            command, bufsize=0, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self._patience = patience
        ready = self._next_result(time.monotonic() + patience)
        self.locks = bool(ready.get("locks"))
        self.trouble = str(ready.get("trouble", "" if ready.get("ready") else f"no answer within {patience:g} s"))

    def collect_answers(self) -> list[str]:
        """Return the names of the hosts that have answered, and remove all files."""
        try:
            out, _ = self._process.communicate(b"", timeout=self._patience)
        except subprocess.TimeoutExpired:
            abandon_process(self._process)
            return []
        told = [json.loads(line) for line in out.splitlines() if line.startswith(b"{")]
        return [name for line in told for name in line.get("answers", [])]

    def _next_result(self, until: float) -> dict[str, object]:
        """Return the first line of the process's output that is not about progress; {} if none arrives in time."""
        out = self._process.stdout
        assert out is not None
        while select.select([out], [], [], max(0.0, until - time.monotonic()))[0]:
            line = out.readline()
            if not line:
                break
            if "doing" not in (output := json.loads(line)):
                return dict(output)
        return {}


def find_marker(folder: str, token: str, host_name: str, *, timeout_seconds: float) -> SeenFolder:
    """Look for the marker of another host in a folder, and return what was found."""
    output = run_probe(
        "shared_disk_probe.py",
        "find",
        folder,
        token,
        host_name,
        str(timeout_seconds),
        timeout_seconds=timeout_seconds + 10,
    )
    if output.code is None:
        return SeenFolder(trouble=f"no answer within {output.seconds:.0f} s")
    if trouble := output.last_value("trouble"):
        return SeenFolder(trouble=trouble)
    return SeenFolder(output.last_value("seconds"), lock=output.last_value("lock"))
