"""Which frameworks' collectives must be watched while one rank runs alone: those that are imported by then.

A framework that is first imported inside the zone has joined no other rank yet, so it has no collective to start.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from allranks.world.zone import Zone


@contextmanager
def framework_guards(zone: Zone) -> Iterator[None]:
    """Watch the imported frameworks for the length of a zone."""
    with ExitStack() as stack:
        if "jax" in sys.modules:
            import allranks.world.guards.jax as jax_guard

            stack.enter_context(jax_guard.guard(zone))
        if "torch.distributed" in sys.modules:
            import allranks.world.guards.torch as torch_guard

            stack.enter_context(torch_guard.guard(zone))
        yield
