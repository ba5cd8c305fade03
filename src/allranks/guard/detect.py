"""Choose the adapter that guards a program, by the framework that has joined the ranks."""

from __future__ import annotations

from collections.abc import Callable

from allranks.world.base import World


def when_ready(backend: str, begin: Callable[[], None]) -> None:
    """Call ``begin`` as soon as collectives can be watched.

    In JAX, this is when the program has started its backend.
    """
    if backend == "jax":
        import allranks.guard.jax as adapter

        adapter.when_backend_is_up(begin)
    else:
        begin()


def compare_replicas(backend: str, world: World) -> None:
    """From now on, compare the values that should be equal on all ranks."""
    if backend == "jax":
        import allranks.guard.jax as jax_edge

        jax_edge.compare_arguments(world)
    else:
        import allranks.guard.torch as torch_edge

        torch_edge.compare_parameters(world)
