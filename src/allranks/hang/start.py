"""Implement ``allranks.init()``: join the other ranks, and start the hang watch, of which a process has only one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping

from allranks.errors import AllranksError
from allranks.gate.log import log
from allranks.hang.watch import Listener, Policy, Watch, WatchSettings
from allranks.launch.hang_limits import read_limits
from allranks.launch.stall import DEFAULT_HANG_AFTER as DEFAULT_HANG_AFTER
from allranks.world import detect
from allranks.world.base import DEFAULT_TIMEOUT, World
from allranks.world.sentinel import Sentinel

_POLICIES: dict[str, Policy] = {"warn": "warn", "end": "end"}

_lock = threading.Lock()
# The thread that runs ``init`` now, or 0. ``substitute`` takes the same lock, in a thread of its own.
_initialising_thread = 0
_made: tuple[WatchSettings | None, Watch | None] | None = None
# Called at the end of ``init``, in its thread.
after_init: list[Callable[[], None]] = []
# The watch of a program that has not called ``init`` yet.
_stop_substitute: Callable[[], None] | None = None


def init(
    backend: str | None = None,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    fail_fast: bool = True,
    hang_after: float | Mapping[str, float] = DEFAULT_HANG_AFTER,
    on_hang: str = "warn",
) -> World:
    """Join the other ranks and return the world; a world of one if there are no signs of others. Every rank must call.

    It joins ranks that were started in any way. These are ``allranks run``, torchrun, Slurm's srun, Open MPI, a TPU pod
    or a Kubernetes job (as JAX detects them), or a framework that is already initialised. It initialises
    ``jax.distributed`` or ``torch.distributed`` if that is not done. With several ranks and no framework initialised,
    the world uses the framework that is imported. If both or none are imported, it uses torch under torchrun, else jax.

    - ``backend`` requires ``jax`` or ``torch`` as the framework, or ``single``: a world of one.
    - ``timeout`` is in seconds, for joining and as the default of the world's exchanges.
    - ``fail_fast``: the failure of one rank ends all ranks within seconds, with the first failure on stderr.
    - ``hang_after`` (seconds; 0: never): if ranks have shown no progress for so long, one report goes to stderr. It
      names the rank for which the others wait, where that rank is, and what to do. ``{"step": 240, "first_step": 1800,
      "evaluation": 600, "checkpoint": 900}`` sets it for each stage of a training; a stage that is not given has the
      value of ``step``.
    - ``on_hang`` is what happens after that report: ``warn`` continues, ``end`` ends all ranks with exit code 75.

    ALLRANKS_HANG_AFTER and ALLRANKS_ON_HANG in the environment (``allranks run --hang-after --on-hang``) override the
    last two arguments, as do the variables of the other stages.

    Raises ContradictingSigns if two parts of the environment cannot both be true.

    This function replaces ``init_process_group`` and ``jax.distributed.initialize``: DDP, FSDP2 and collectives work
    afterwards. They work also in a world of one of torch, with ``backend="torch"`` or if a launcher started one rank. A
    later call, for instance by a library, returns the same world, whatever its times and hang settings. It raises
    AllranksError if the world uses another ``backend``.
    """
    global _made, _stop_substitute, _initialising_thread
    settings = _watch_settings(hang_after, on_hang)
    with _lock:
        _initialising_thread = threading.get_ident()
        try:
            world = detect.init(backend, timeout=timeout, fail_fast=fail_fast)
        finally:
            _initialising_thread = 0
        if _made is None:
            if _stop_substitute is not None:
                _stop_substitute()
                _stop_substitute = None
            _made = settings, _start_watch(world, settings)
        elif settings not in (_made[0], _watch_settings(DEFAULT_HANG_AFTER, "warn")):
            again = f"allranks.init(hang_after={hang_after!r}, on_hang={on_hang!r})"
            log("allranks: %s changes nothing: the first call has set up the hang watch.", again, level=30)
    while after_init:
        after_init.pop()()
    return world


def is_initialising() -> bool:
    """Return whether this thread runs ``init`` now."""
    return _initialising_thread == threading.get_ident()


def substitute(world: World, listener: Listener, stop: Callable[[], None]) -> bool:
    """Start the watch of a program that has not called ``init``, and return whether it was started.

    A later ``init`` calls ``stop`` to end this watch.
    """
    global _stop_substitute
    settings = _watch_settings(DEFAULT_HANG_AFTER, "warn")
    with _lock:
        if _made is not None or _stop_substitute is not None or settings is None:
            return False
        _stop_substitute = stop
        Watch(world, listener, settings).start()
    return True


def _watch_settings(hang_after: float | Mapping[str, float], on_hang: str) -> WatchSettings | None:
    policy = os.environ.get("ALLRANKS_ON_HANG", on_hang)
    if policy not in _POLICIES:
        raise AllranksError(f"init: on_hang is {policy!r}: expected 'warn' or 'end'.")
    try:
        limits = read_limits(hang_after, os.environ)
    except ValueError as error:
        raise AllranksError(f"init: {error}.", remedy="hang_after is in seconds, 0 for never.") from error
    return None if limits is None else WatchSettings(limits, _POLICIES[policy])


def _start_watch(world: World, settings: WatchSettings | None) -> Watch | None:
    """Start the watch of a world of several processes, and return it; None for a world of one, which needs no watch."""
    if settings is None or not isinstance(world.listener, Sentinel):
        return None
    watch = Watch(world, world.listener, settings)
    watch.start()
    return watch
