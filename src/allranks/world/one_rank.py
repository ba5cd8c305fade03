"""Open a zone: the stretch of code that only one rank runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from allranks.callsite import call_site
from allranks.world.guards.detect import framework_guards
from allranks.world.zone import Zone, within


@contextmanager
def one_rank(rank: int) -> Iterator[None]:
    """Open a zone for this thread: inside, collectives raise CollectiveOnOneRank."""
    zone = Zone(rank, call_site())
    with within(zone), framework_guards(zone):
        yield
