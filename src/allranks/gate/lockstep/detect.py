"""Apply lockstep to the frameworks that this process uses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from allranks.gate.lockstep.monitor import LockstepMonitor


def wrap_function(
    monitor: LockstepMonitor, fn: Callable[..., Any], *, same_lines: bool, timeout: float | None
) -> Callable[..., Any]:
    """Return ``fn`` wrapped so that its calls (JAX), or the collectives in them (torch), are compared over ranks."""
    if _uses_jax():
        import allranks.gate.lockstep.jax as jax_edge

        return jax_edge.LockstepFunction(
            lambda: jax_edge.programs_of(monitor), fn, same_lines=same_lines, timeout=timeout
        )
    import allranks.gate.lockstep.torch as torch_edge

    return torch_edge.wrap_function(monitor, fn, same_lines=same_lines, timeout=timeout)


@contextmanager
def compare_collectives(
    monitor: LockstepMonitor, *, same_lines: bool, timeout: float | None, compares_all_programs: bool = False
) -> Iterator[None]:
    """Compare the collectives that this thread starts in a block.

    With ``compares_all_programs``, also every JAX program that runs across processes.
    """
    with ExitStack() as stack:
        if _uses_jax():
            import allranks.gate.lockstep.jax as jax_edge

            programs = jax_edge.programs_of(monitor)
            if compares_all_programs:
                programs.compare_every_run()
        if "torch.distributed" in sys.modules:
            import allranks.gate.lockstep.torch as torch_edge

            stack.enter_context(torch_edge.compare_collectives(monitor, same_lines=same_lines, timeout=timeout))
        yield


def _uses_jax() -> bool:
    if "jax" not in sys.modules:
        return False
    import allranks.world.jax as jax_world

    return jax_world.initialised() is not None
