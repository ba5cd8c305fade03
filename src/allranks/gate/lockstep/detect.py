"""Choose the frameworks that lockstep watches: those that this process uses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from allranks.gate.lockstep.monitor import Monitor


def wrapped(monitor: Monitor, fn: Callable[..., Any], *, same_lines: bool, timeout: float | None) -> Callable[..., Any]:
    """Return ``fn`` wrapped so that its calls (JAX), or the collectives in them (torch), are compared over ranks."""
    if _uses_jax():
        import allranks.gate.lockstep.jax as jax_edge

        return jax_edge.LockstepFunction(
            lambda: jax_edge.programs_of(monitor), fn, same_lines=same_lines, timeout=timeout
        )
    import allranks.gate.lockstep.torch as torch_edge

    return torch_edge.wrapped(monitor, fn, same_lines=same_lines, timeout=timeout)


@contextmanager
def watched(monitor: Monitor, *, same_lines: bool, timeout: float | None, unwrapped: bool = False) -> Iterator[None]:
    """Compare the collectives of this thread in a block; with ``unwrapped``, every JAX program across processes too."""
    with ExitStack() as stack:
        if _uses_jax():
            import allranks.gate.lockstep.jax as jax_edge

            programs = jax_edge.programs_of(monitor)
            if unwrapped:
                programs.follow()
        if "torch.distributed" in sys.modules:
            import allranks.gate.lockstep.torch as torch_edge

            stack.enter_context(torch_edge.watched(monitor, same_lines=same_lines, timeout=timeout))
        yield


def _uses_jax() -> bool:
    if "jax" not in sys.modules:
        return False
    import allranks.world.jax as jax_world

    return jax_world.initialised() is not None
