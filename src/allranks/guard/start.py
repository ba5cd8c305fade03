"""Start the guard of a program that has just joined the other ranks, and that does not import allranks.

Under ``allranks run --guard``, the agent calls ``begin`` in the thread that has joined. The guard has the same effect
as ``allranks.init()`` and a block of ``allranks.lockstep()`` around everything that follows. The guard also compares
replicas: in torch at the first step of each optimizer, in JAX before the first run of a program.
"""

from __future__ import annotations

from allranks.gate.lockstep.api import watch_process
from allranks.gate.lockstep.monitor import Check
from allranks.guard import detect
from allranks.hang import start
from allranks.world.base import World


def begin(backend: str, *, lines: bool, values: bool = True) -> None:
    """Guard this process. **Every rank must call**, once, in the thread that trains.

    With ``lines``, the source lines that start a collective must be equal on all ranks. With ``values``, replicas and
    the arguments of JAX's programs are compared.
    """
    if start.is_initialising():
        start.after_init.append(lambda: begin(backend, lines=lines, values=values))
        return
    world = start.init(backend)
    detect.when_ready(backend, lambda: _watch(backend, world, lines=lines, values=values))


def _watch(backend: str, world: World, *, lines: bool, values: bool) -> None:
    if world.size > 1:
        if values:
            detect.compare_replicas(backend, world)  # first: the hooks of lockstep must run before it
        # Loops are not compared: the program cannot mark the loops whose lengths are rank-local.
        watch_process(world=world, lines=lines, check=_check(backend, values=values))


def _check(backend: str, *, values: bool) -> Check:
    """Return what lockstep compares besides calls. For JAX, lockstep compares values together with steps."""
    return "values" if values else "calls" if backend == "jax" else "steps"
