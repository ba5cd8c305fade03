"""Begin to guard a program that has just joined the other ranks, and that does not import allranks.

The agent calls ``begin`` in the thread that has joined, where ``allranks run --guard`` asks for it. It does what the
program would do by ``allranks.init()`` and a block of ``allranks.lockstep()`` around everything that follows, and
compares replicas: of torch at the first step of each optimizer, of JAX before the first run of a program.
"""

from __future__ import annotations

from allranks.gate.lockstep.api import watch_process
from allranks.guard import detect
from allranks.hang import start
from allranks.world.base import World


def begin(backend: str, *, lines: bool) -> None:
    """Guard this process; **every rank must call**, once, in the thread that trains.

    With ``lines``, the lines that start a collective must be alike.
    """
    if start.is_initialising():
        start.after_init.append(lambda: begin(backend, lines=lines))
        return
    world = start.init(backend)
    detect.when_ready(backend, lambda: _watch(backend, world, lines=lines))


def _watch(backend: str, world: World, *, lines: bool) -> None:
    if world.size > 1:
        detect.compare_replicas(backend, world)  # first: what lockstep compares comes before it
        # No loops: who does not import us cannot say which of his count what a rank has for itself.
        watch_process(world=world, lines=lines, check="values")
