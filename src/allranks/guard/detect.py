"""Choose the framework adapter that guards a program: that of the framework that has joined."""

from __future__ import annotations

from collections.abc import Callable

from allranks.world.base import World


def when_ready(backend: str, begin: Callable[[], None]) -> None:
    """Call ``begin`` as soon as collectives may be watched: in JAX, when the program has started its backend."""
    if backend == "jax":
        import allranks.guard.jax as adapter

        adapter.when_backend_is_up(begin)
    else:
        begin()


def compare_replicas(backend: str, world: World) -> None:
    """Compare what should be equal on all ranks, from now on."""
    if backend == "jax":
        import allranks.guard.jax as jax_edge

        jax_edge.compare_arguments(world)
    else:
        import allranks.guard.torch as torch_edge

        torch_edge.compare_parameters(world)
