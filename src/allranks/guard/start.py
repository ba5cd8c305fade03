"""Start the guard of a program that has just joined the other ranks, and that does not import allranks.

The agent calls ``begin`` in the thread that has joined, under ``allranks run --guard``. It does what the program would
do with ``allranks.init()`` and a block of ``allranks.lockstep()`` around everything that follows, and compares
replicas: in torch at the first step of each optimizer, in JAX before the first run of a program.
"""

from __future__ import annotations

from allranks.gate.lockstep.api import watch_process
from allranks.gate.lockstep.monitor import Check
from allranks.guard import detect
from allranks.hang import start
from allranks.world.base import World


def begin(backend: str, *, lines: bool, values: bool = True) -> None:
    """Guard this process; **every rank must call**, once, in the thread that trains.

    With ``lines``, the lines that start a collective must be equal; with ``values``, replicas and the arguments of
    JAX's programs are compared.
    """
    if start.is_initialising():
        start.after_init.append(lambda: begin(backend, lines=lines, values=values))
        return
    world = start.init(backend)
    detect.when_ready(backend, lambda: _watch(backend, world, lines=lines, values=values))


def _watch(backend: str, world: World, *, lines: bool, values: bool) -> None:
    if world.size > 1:
        if values:
            detect.compare_replicas(backend, world)  # first: what lockstep compares comes before it
        # No loops: who does not import us cannot say which of his count what a rank has for itself.
        watch_process(world=world, lines=lines, check=_check(backend, values=values))


def _check(backend: str, *, values: bool) -> Check:
    """Return what lockstep compares beside calls; of JAX, it compares values together with steps."""
    return "values" if values else "calls" if backend == "jax" else "steps"
