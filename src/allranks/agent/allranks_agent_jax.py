"""Let jax.distributed.initialize() join without arguments, and let a rank leave so that no other rank waits for it.

A JAX rank that ends early waits in JAX's shutdown barrier with its connections open, so other ranks wait too: for 300
s, or for ever. When the program is over, and the computations that it dispatched have run, this rank takes part in no
collective any more. The rank then tells the XLA CPU backends of the other ranks so:
- It half-closes its gloo connections (they are known from the addresses that gloo publishes in JAX's key-value store).
  Data that was sent still arrives, and a rank blocked on us gets "connection closed by peer".
- A clique is a set of devices with connections of its own. For a clique that other ranks are still setting up, or set
  up later, it publishes an empty address, which they refuse at once.
- Before there is a backend at all, it publishes an empty description of its devices.

That leaves the connections between the devices of one other rank: one device fails, and the next waits for it for ever.
So the launcher tells the other ranks that a rank has left. If one of them is stuck from then on, it also half-closes
its ends. A rank that computes without the others is not affected, and still waits in the barrier.
"""

from __future__ import annotations

import atexit
import errno
import functools
import os
import queue
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

import allranks_agent_failure as failures  # type: ignore[import-not-found]
import allranks_agent_loopback as loopback  # type: ignore[import-not-found]
import allranks_agent_missing_ranks as missing_ranks  # type: ignore[import-not-found]
import allranks_agent_preemption as preemption  # type: ignore[import-not-found]
from allranks_agent_imports import after_import  # type: ignore[import-not-found]

GLOO = "cpu:gloo/"
NO_ADDRESS = bytes(16)  # gloo: a host name of no bytes, an address of no bytes
NO_DEVICES = b"\xff\xff\xff"  # no such protocol buffer
POLL_SECONDS = 0.2
STUCK_SECONDS = 0.5  # without a step forward, and nearly without use of a processor
STUCK_LOAD = 0.2
COORDINATOR_SECONDS = 60.0

Endpoint = tuple[bytes, int]


def attach(
    report: Callable[..., None], is_active: Callable[[], bool], *, fail: Callable[[BaseException], object]
) -> None:
    """Report when JAX joins and leaves, whether JAX is imported already or later.

    `fail` is called with the error of a computation that failed after the program's end, and that the program
    dispatched and never awaited. JAX would drop this error, and the program would end as if all were well.
    """
    if os.environ.get("ALLRANKS_STYLE") == "default":
        after_import("jax._src.clusters", _offer_cluster)
    after_import("jax._src.distributed", lambda module: _wrap_initialize_and_shutdown(module.State, report, is_active))
    after_import("jax._src.xla_bridge", loopback.bind_jax_gloo)
    after_import("jax.experimental.multihost_utils", preemption.watch_queries)
    # After JAX has registered its own clean_up, hence run before it, while there still is a backend.
    after_import("jax", lambda _: atexit.register(_leave_at_exit, is_active, fail))


def forget_shutdown() -> None:
    """Remove three atexit functions: JAX's shutdown barrier, its wait for pending effects, and our leaving."""
    atexit.unregister(_leave_at_exit)
    for module, name in (("jax._src.api", "clean_up"), ("jax._src.dispatch", "wait_for_tokens")):
        if module in sys.modules:
            atexit.unregister(getattr(sys.modules[module], name))


def _leave_at_exit(is_active: Callable[[], bool], fail: Callable[[BaseException], object]) -> None:
    if not is_active() or sys.modules["jax._src.distributed"].global_state.client is None:
        return
    try:
        _DEPARTURE.leave()
    except sys.modules["jax"].errors.JaxRuntimeError as error:
        fail(error)


def _offer_cluster(clusters: ModuleType) -> None:
    """Put our cluster first in JAX's list, before a cluster that leftover variables of a login node would select."""
    base: Any = clusters.ClusterEnv

    class AllranksCluster(base):  # type: ignore[misc]
        name = "allranks"

        @classmethod
        def is_env_present(cls) -> bool:
            return "ALLRANKS_COORDINATOR" in os.environ

        @classmethod
        def get_coordinator_address(cls, *_: Any, **__: Any) -> str:
            return os.environ["ALLRANKS_COORDINATOR"]

        @classmethod
        def get_process_count(cls) -> int:
            return int(os.environ["ALLRANKS_SIZE"])

        @classmethod
        def get_process_id(cls) -> int:
            return int(os.environ["ALLRANKS_RANK"])

    base._cluster_types.remove(AllranksCluster)
    base._cluster_types.insert(0, AllranksCluster)


def _wrap_initialize_and_shutdown(state: type[Any], report: Callable[..., None], is_active: Callable[[], bool]) -> None:
    initialize, shutdown = state.initialize, state.shutdown

    @functools.wraps(initialize)
    def initialize_and_report(self: Any, coordinator_address: str | None = None, *args: Any, **kwargs: Any) -> None:
        if is_active():
            address = coordinator_address or os.environ.get("JAX_COORDINATOR_ADDRESS")
            args, kwargs = loopback.with_bind_address(address or os.environ["ALLRANKS_COORDINATOR"], args, kwargs)
            if (coordinator_address or "").startswith(("localhost:", "127.0.0.1:")):
                missing_ranks.refuse(
                    "jax.distributed.initialize", (args[0] if args else kwargs.get("num_processes")) or 0
                )
            report("joining", backend="jax")
            if os.environ["ALLRANKS_RANK"] != "0":
                await_coordinator(coordinator_address or os.environ["ALLRANKS_COORDINATOR"])
        initialize(self, coordinator_address, *args, **kwargs)
        if is_active():
            _start_departure_listener()
            _DEPARTURE.prepare()
            report("joined", backend="jax", size=self.num_processes)

    @functools.wraps(shutdown)
    def shutdown_and_report(self: Any) -> None:
        if is_active() and self.client is not None and not _DEPARTURE.left:
            error = sys.exc_info()[1]
            is_failing = error is not None and failures.exit_code_of(error)
            report("leaving", failure=failures.of(error) if is_failing else None)
            _DEPARTURE.leave()
        try:
            shutdown(self)
        finally:
            _DEPARTURE.over()

    state.initialize, state.shutdown = initialize_and_report, shutdown_and_report
    preemption.watch(state, is_active)


def await_coordinator(address: str, seconds: float = COORDINATOR_SECONDS) -> bool:
    """Wait until rank 0 listens at the address; return whether it does.

    A gRPC client that connects too early sleeps for a second before it tries again.
    """
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.01)
        else:
            return True
    return False


class _Departure:
    """How this rank leaves the collectives: once, and then until JAX's barrier releases it."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.left = False
        self._watcher: threading.Thread | None = None
        # What the watcher waits for: the client and the devices to answer for, and the end of this world.
        self._work: queue.SimpleQueue[tuple[Any, list[int]] | None] = queue.SimpleQueue()
        self._over = threading.Event()

    def prepare(self) -> None:
        """Start the watcher thread when this world begins. (Python 3.12 starts no thread while it ends.)"""
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, args=(self._work, self._over), daemon=True)
            self._watcher.start()

    def leave(self) -> None:
        """Finish the dispatched computations, then make other ranks' waits for us fail, now and until `over`.

        Raises the JaxRuntimeError of a computation that was still pending, and failed.
        """
        self.left = True
        pending: list[Any] = []
        try:
            self._leave(sys.modules["jax._src.distributed"].global_state, sys.modules["jax._src.xla_bridge"], pending)
        except Exception as error:  # private parts of JAX and XLA: the program, which is done, must not fail by them
            print(f"allranks: peers that still wait for this rank may hang: {error!r}", file=sys.stderr)
        for array in pending:
            array.block_until_ready()

    def over(self) -> None:
        """Record that this world has ended. The process may join another world later."""
        if self._watcher is not None:
            self._over.set()
            self._work.put(None)
            self._watcher.join()
        self._begin()

    def _leave(self, world: Any, bridge: Any, pending: list[Any]) -> None:
        if world.num_processes == 1:
            return
        if not bridge.backends_are_initialized():
            _publish_no_devices(world.client, world.process_id)
        elif "cpu" in bridge._backends:
            pending += (array for array in bridge._backends["cpu"].live_arrays() if not array.is_ready())
            devices = bridge._backends["cpu"].local_devices()
            _finish_dispatched(devices)
            _half_close(_gloo_endpoints(world.client))
            mine = [device.id for device in devices]
            _publish_no_address(world.client, mine)
            self._work.put((world.client, mine))

    @staticmethod
    def _watch(work: queue.SimpleQueue[tuple[Any, list[int]] | None], over: threading.Event) -> None:
        """Refuse cliques that other ranks set up while we wait in the barrier.

        Polls, since the store has no event for new keys.
        """
        found = work.get()
        if found is None:
            return
        client, devices = found
        while not over.wait(POLL_SECONDS):
            try:
                _publish_no_address(client, devices)
            except sys.modules["jax"].errors.JaxRuntimeError:
                return  # the barrier is over, and the store with it


_DEPARTURE = _Departure()


def _start_departure_listener() -> None:
    """Start a thread that waits for the launcher's message that a rank has left.

    The message arrives at the socket ALLRANKS_CONTROL.<rank>.
    """
    path = f"{os.environ['ALLRANKS_CONTROL']}.{os.environ['ALLRANKS_RANK']}"
    if os.path.exists(path):
        return  # an earlier world of this process
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    channel.bind(path)
    threading.Thread(target=_free_ourselves, args=(channel,), name="allranks", daemon=True).start()


def _free_ourselves(channel: socket.socket) -> None:
    """Wait until a rank has left, then make the collective fail in which this rank is stuck.

    The rank that has left will never join that collective.
    """
    channel.recv(1)
    world, bridge = sys.modules["jax._src.distributed"].global_state, sys.modules["jax._src.xla_bridge"]
    while True:
        if _is_stuck(bridge) and not _DEPARTURE.left:
            _half_close(_gloo_endpoints(world.client))


def _is_stuck(bridge: Any) -> bool:
    """Return whether the same result stays pending for STUCK_SECONDS while the process does nothing."""
    before, used = _live_arrays(bridge), time.process_time()
    time.sleep(STUCK_SECONDS)
    return bool(before & _live_arrays(bridge)) and time.process_time() - used < STUCK_LOAD * STUCK_SECONDS


def _live_arrays(bridge: Any) -> set[int]:
    if not bridge.backends_are_initialized() or "cpu" not in bridge._backends:
        return set()
    return {id(array) for array in bridge._backends["cpu"].live_arrays() if not array.is_ready()}


def _finish_dispatched(devices: list[Any]) -> None:
    """Run an empty computation on all our devices. XLA:CPU starts it when everything dispatched before has ended."""
    jax = sys.modules["jax"]
    sharding = jax.sharding.NamedSharding(jax.sharding.Mesh(devices, "d"), jax.sharding.PartitionSpec("d"))
    jax.jit(lambda: jax.numpy.zeros(len(devices)), out_shardings=sharding)().block_until_ready()


def _publish_no_devices(client: Any, process_id: int) -> None:
    client.key_value_set_bytes(f"cpu:local_topology/cpu/{process_id}", NO_DEVICES)
    if process_id == 0:  # it gathers the parts and publishes the result
        client.key_value_set_bytes("cpu:global_topology/cpu", NO_DEVICES)


def _publish_no_address(client: Any, devices: Iterable[int]) -> None:
    """In each clique that waits for our devices, publish an empty address for them: cpu:gloo/<device ids>/<index>."""
    published = {key for key, _ in client.key_value_dir_get_bytes(GLOO)}
    for clique in {key.rpartition("/")[0] for key in published}:
        members = [int(device) for device in clique.removeprefix(GLOO).split(",")]
        for place in (members.index(device) for device in devices if device in members):
            if f"{clique}/{place}" not in published:
                client.key_value_set_bytes(f"{clique}/{place}", NO_ADDRESS)


def _gloo_endpoints(client: Any) -> set[Endpoint]:
    """Return the address at which each process of this world listens for gloo connections."""
    return {_gloo_endpoint(value) for _, value in client.key_value_dir_get_bytes(GLOO) if value != NO_ADDRESS}


def _gloo_endpoint(value: bytes) -> Endpoint:
    """Decode an address that gloo publishes: a length and a host name, a length and a sockaddr_storage, and more."""
    start = 8 + int.from_bytes(value[:8], "little") + 8
    family, port = int.from_bytes(value[start : start + 2], "little"), value[start + 2 : start + 4]
    ip = value[start + 4 : start + 8] if family == socket.AF_INET else value[start + 8 : start + 24]
    return ip, int.from_bytes(port, "big")


def _half_close(listeners: set[Endpoint]) -> None:
    """Shut down sending on each connection of this process that has one of these listeners as an end.

    Gloo's threads close connections meanwhile. If they close a descriptor, nothing remains to be done for it. By the
    time we duplicate the descriptor, its number may belong to no file, or to another one.
    """
    wanted = {inode for inode, *ends in _tcp_connections() if not listeners.isdisjoint(ends)}
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            held = os.dup(int(descriptor))
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            continue
        try:
            if _socket_inode(held) in wanted:
                _send_no_more(held)
        finally:
            os.close(held)


def _socket_inode(descriptor: int) -> str | None:
    status = os.fstat(descriptor)
    return str(status.st_ino) if stat.S_ISSOCK(status.st_mode) else None


def _send_no_more(descriptor: int) -> None:
    connection = socket.socket(fileno=descriptor)
    try:
        connection.shutdown(socket.SHUT_WR)
    except OSError as error:
        if error.errno != errno.ENOTCONN:  # the peer has reset it
            raise
    finally:
        connection.detach()


def _tcp_connections() -> Iterator[tuple[str, Endpoint, Endpoint]]:
    """Yield the inode (in digits) and both ends of each established TCP connection in this network namespace."""
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        with open(table) as lines:
            rows = [line.split() for line in lines][1:]
        yield from ((row[9], _decode_endpoint(row[1]), _decode_endpoint(row[2])) for row in rows if row[3] == "01")


def _decode_endpoint(text: str) -> Endpoint:
    """Decode an endpoint such as "0100007F:1F90": the address in words of the machine's byte order, the port in hex."""
    words, _, port = text.partition(":")
    raw = bytes.fromhex(words)
    ip = b"".join(raw[at : at + 4][:: -1 if sys.byteorder == "little" else 1] for at in range(0, len(raw), 4))
    return ip.removeprefix(b"\0" * 10 + b"\xff\xff"), int(port, 16)
