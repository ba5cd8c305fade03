"""Guard a program of JAX: wait for its backend, and compare the replicated arguments of its first programs."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax._src import xla_bridge

from allranks.consistency.verify import verify
from allranks.world.base import World
from allranks.world.guards import jax as inside

# How many programs have their arguments compared, each before its first run.
_PROGRAMS = 8


def when_backend_is_up(begin: Callable[[], None]) -> None:
    """Call ``begin`` in the main thread once the program has started JAX's backend.

    Before the backend is started, the program may still configure JAX.
    """
    if xla_bridge.backends_are_initialized():
        begin()
        return
    # Not in ``backends``, which ``get_backend`` calls: inside it, JAX 0.12 refuses calls that need the backend.
    get: Any = xla_bridge.get_backend

    @functools.wraps(get)
    def get_backend(*arguments: Any, **options: Any) -> Any:
        found = get(*arguments, **options)
        if xla_bridge.get_backend is get_backend and threading.current_thread() is threading.main_thread():
            xla_bridge.get_backend = get
            begin()
        return found

    get_backend.cache_clear = get.cache_clear  # type: ignore[attr-defined]
    xla_bridge.get_backend = get_backend


def compare_arguments(world: World) -> None:
    """From now on, compare arrays that are replicated over all ranks. If one differs, every rank raises Mismatch."""
    seen: set[int] = set()

    def compare_program(program: Any, *arguments: Any) -> None:
        if id(program) in seen or len(seen) >= _PROGRAMS or len(inside.processes_of(program)) < world.size:
            return
        seen.add(id(program))
        kept.append(program)
        replicas = {f"argument {number}": one for number, one in enumerate(arguments, 1) if _is_replica(one)}
        if replicas:
            verify({program.name: replicas}, world=world)

    kept: list[Any] = []  # so that no other program gets the identity of one of them
    inside.on_programs(compare_program)


def _is_replica(argument: Any) -> bool:
    return (
        isinstance(argument, jax.Array)
        and not jnp.issubdtype(argument.dtype, jax.dtypes.extended)
        and argument.is_fully_replicated
        and not argument.is_fully_addressable
    )
