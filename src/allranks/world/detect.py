"""Detect the backend of the world (single, jax or torch) and join it. Only this file knows all backends."""

from __future__ import annotations

import importlib
import os
import socket
import sys
import threading
from dataclasses import dataclass, replace
from importlib.util import find_spec
from types import ModuleType

from allranks.errors import AllranksError, ContradictingSigns
from allranks.world.base import DEFAULT_TIMEOUT, RankIdentity, World
from allranks.world.launcher_environment import Decision, Framework, LauncherEnvironment, decide, launcher_of
from allranks.world.processes import ProcessInfo, addresses_of_this_host, local_rank_of, of_this_process
from allranks.world.sentinel import Sentinel
from allranks.world.store import LocalStore

_ALONE = (
    "allranks: no launcher and no initialised framework: a world of one. For four ranks: allranks run -n 4 train.py"
)
# JAX's names for launchers that ``launcher_environment`` reads by itself.
_READ_BY_SIGNS = ("slurm", "ompi", "allranks")
# Variables of places where asking JAX is worth its import.
_JAX_KNOWS = ("TPU_WORKER_HOSTNAMES", "MEGASCALE_NUM_SLICES", "JOB_COMPLETION_INDEX")


@dataclass(frozen=True, slots=True)
class _InitArguments:
    backend: str | None
    timeout: float
    fail_fast: bool


_lock = threading.Lock()
_made: World | None = None


def init(backend: str | None = None, *, timeout: float = DEFAULT_TIMEOUT, fail_fast: bool = True) -> World:
    """Join the other ranks, or make a world of one rank; return the world.

    ``allranks.init`` (hang/start.py) calls this function and also starts the hang watch.
    """
    global _made
    _refuse_in_simulated_world()
    with _lock:
        if _made is None:
            _made = _join_ranks(decide(_launcher_environment(backend)), _InitArguments(backend, timeout, fail_fast))
        elif backend not in (None, _made.backend) and (_made.size > 1 or backend == "torch"):
            raise AllranksError(
                f"rank {_made.rank}: allranks.init(backend={backend!r}): the world already exists, and its backend "
                f"is {_made.backend!r}.",
                remedy="Leave backend out, or pass it in the first call of allranks.init().",
            )
        return _made


def current() -> World:
    """Return the world that ``init`` made. Raises AllranksError if ``init`` was not called yet."""
    _refuse_in_simulated_world()
    if _made is None:
        raise AllranksError(
            "current: there is no world yet, because allranks.init() was not called.",
            remedy="Call allranks.init() at the start of the program.",
        )
    return _made


def _refuse_in_simulated_world() -> None:
    """Raise AllranksError if a simulated rank calls: it would get the world of its process, which is a world of one."""
    simulated = sys.modules.get("allranks.world.simulated")
    if simulated is not None and (rank := simulated.running_rank()) is not None:
        raise AllranksError(
            f"rank {rank}: allranks.init() or current(): this rank is simulated, and its world is the argument that "
            "SimulatedWorld passes to the program.",
            remedy="Use that argument: def train(world): ...",
        )


def decide_without_joining(backend: str | None = None) -> Decision:
    """Return the decision that ``init`` would make for this process, without joining. Raises ContradictingSigns."""
    return decide(_launcher_environment(backend))


def _launcher_environment(backend: str | None) -> LauncherEnvironment:
    processes = sys.modules.get("multiprocessing.process")  # imported in a child process; otherwise not needed
    return LauncherEnvironment(
        environ=os.environ,
        jax=_framework_state("jax"),
        torch=_framework_state("torch"),
        backend=backend,
        cluster=_detected_cluster() if backend != "single" else None,
        is_child=processes is not None and processes.parent_process() is not None,
        is_importing=processes is not None and hasattr(processes.current_process(), "_inheriting"),
    )


def _framework_state(name: str) -> Framework:
    """Return the state of a framework (``jax`` or ``torch``). Does not import the framework."""
    if name not in sys.modules:
        return Framework(installed=find_spec(name) is not None)
    adapter = _framework_adapter(name)
    return Framework(
        installed=True,
        imported=True,
        initialised=adapter.initialised(),
        started=name == "jax" and adapter.backend_started(),
    )


def _detected_cluster() -> str | None:
    """Return the name of the cluster that JAX detects. Return None if a launcher's variables give the rank."""
    asking_pays = "jax" in sys.modules or (any(name in os.environ for name in _JAX_KNOWS) and find_spec("jax"))
    if not asking_pays or launcher_of(os.environ) is not None:
        return None
    found: str | None = _framework_adapter("jax").detected_cluster()
    return None if found in _READ_BY_SIGNS else found


def _framework_adapter(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"allranks.world.{name}")
    except ImportError as error:
        raise ContradictingSigns(
            f"{name} is installed, but cannot be imported: {error}.", remedy=f"Repair the installation of {name}."
        ) from error


def _join_ranks(decision: Decision, arguments: _InitArguments) -> World:
    me = of_this_process(os.environ)
    if decision.backend == "single":
        if not decision.launcher and not decision.evidence:
            print(_ALONE, file=sys.stderr)
        return single_world()
    adapter = _framework_adapter(decision.backend)
    rank, size = adapter.join(decision, timeout=arguments.timeout)
    if (decision.rank, decision.size) not in ((rank, size), (None, None)):
        raise ContradictingSigns(
            f"{decision.evidence}, but {decision.backend}.distributed made this process rank {rank} of {size}.",
            remedy="Let one launcher set rank and size, and unset the other's variables.",
        )
    if size == 1:
        return World(RankIdentity(0, 1, 0, (me.host,), decision.backend), LocalStore(), timeout=arguments.timeout)
    return _exchange_hosts(
        adapter, RankIdentity(rank, size, 0, ("?",) * size, decision.backend), decision, me, arguments
    )


def _exchange_hosts(
    adapter: ModuleType, identity: RankIdentity, decision: Decision, me: ProcessInfo, arguments: _InitArguments
) -> World:
    """Exchange the hosts and processes of all ranks, start the sentinel, and return the world. Every rank must call."""
    from allranks.world.signed_store import signed_store

    store = signed_store(adapter.connect(), os.environ)
    sentinel = Sentinel(store, identity.rank, identity.size, me, fail_fast=arguments.fail_fast)
    sentinel.listen()
    world = World(identity, store, timeout=arguments.timeout, listener=sentinel)
    endpoint = sentinel.open_endpoint(addresses_of_this_host(os.environ))
    gathered = world.all_gather([me.to_json(), endpoint], name="init")
    everybody = tuple(ProcessInfo(**process) for process, _ in gathered)
    local_rank = decision.local_rank if decision.local_rank is not None else local_rank_of(identity.rank, everybody)
    world.identity = replace(identity, local_rank=local_rank, hosts=tuple(one.host for one in everybody))
    sentinel.watch(everybody, gathered[0][1], rendezvous=(decision.address or "").rpartition(":")[0])
    return world


def single_world() -> World:
    """Return a world whose only rank is this process."""
    identity = RankIdentity(rank=0, size=1, local_rank=0, hosts=(socket.gethostname(),), backend="single")
    return World(identity, LocalStore())
