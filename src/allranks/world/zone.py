"""The stretch of code that only one rank runs: no collective may start in it.

The world's own exchanges look here; a framework's collectives are watched by guards (guards/). ``one_rank`` opens a
zone (one_rank.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from allranks.callsite import call_site
from allranks.errors import CollectiveOnOneRank


@dataclass(frozen=True, slots=True)
class Zone:
    """``opened`` is the line that opened it, ``rank`` the one that runs it."""

    rank: int
    opened: str


_current: ContextVar[Zone | None] = ContextVar("allranks_zone", default=None)


def current() -> Zone | None:
    """Return the zone that this thread is in."""
    return _current.get()


def refuse(collective: str, zone: Zone | None = None) -> None:
    """Raise CollectiveOnOneRank if this thread is in a zone; ``collective`` says what was about to start.

    A framework's own thread is in no zone: a guard that follows the work there says which ``zone`` it came from.
    """
    zone = zone or _current.get()
    if zone is None:
        return
    where = call_site() or "(no Python line)"
    raise CollectiveOnOneRank(
        f"rank {zone.rank}: {collective} at {where} needs every rank, but only rank {zone.rank} runs this code "
        f"(opened at {zone.opened}). The other ranks would never join it.",
        ranks=(zone.rank,),
        remedy="Make the call on all ranks before, and pass its result to the code that one rank runs.",
    )


@contextmanager
def within(zone: Zone) -> Iterator[None]:
    """Take this thread for one that runs the code of a zone."""
    token = _current.set(zone)
    try:
        yield
    finally:
        _current.reset(token)
