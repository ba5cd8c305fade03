"""Open a section that only one rank runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from allranks.callsite import call_site
from allranks.world.guards.detect import framework_guards
from allranks.world.main_rank_section import MainRankSection, within


@contextmanager
def one_rank(rank: int) -> Iterator[None]:
    """Open a section for this thread: inside, collectives raise CollectiveOnOneRank."""
    section = MainRankSection(rank, call_site())
    with within(section), framework_guards(section):
        yield
