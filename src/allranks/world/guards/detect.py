"""Open a section of code that only one rank runs, and guard the collectives of the imported frameworks in it.

A framework that is first imported inside the section has joined no other rank yet, so it has no collective to start.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from allranks.callsite import call_site
from allranks.world.main_rank_section import MainRankSection, run_in_section


@contextmanager
def framework_guards(section: MainRankSection) -> Iterator[None]:
    """Guard the collectives of the imported frameworks while the ``with`` block runs."""
    with ExitStack() as stack:
        if "jax" in sys.modules:
            import allranks.world.guards.jax as jax_guard

            stack.enter_context(jax_guard.guard(section))
        if "torch.distributed" in sys.modules:
            import allranks.world.guards.torch as torch_guard

            stack.enter_context(torch_guard.guard(section))
        yield


@contextmanager
def one_rank(rank: int) -> Iterator[None]:
    """Run the ``with`` block as code of one rank: in this thread, collectives raise CollectiveOnOneRank."""
    section = MainRankSection(rank, call_site())
    with run_in_section(section), framework_guards(section):
        yield
