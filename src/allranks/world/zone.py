"""The stretch of code that only one rank runs: no collective may start in it.

The world's own exchanges look here. A framework's collectives are watched by guards that ``gate`` registers; it is
imported, by its name, when a zone is opened: whatever part of us a program uses, it needs no other import for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module

from allranks.callsite import call_site
from allranks.errors import CollectiveOnOneRank


@dataclass(frozen=True, slots=True)
class Zone:
    """``opened`` is the line that opened it, ``rank`` the one that runs it."""

    rank: int
    opened: str


Guard = Callable[[Zone], AbstractContextManager[None]]

_current: ContextVar[Zone | None] = ContextVar("allranks_zone", default=None)
_guards: list[Guard] = []


def register_guard(guard: Guard) -> None:
    """Have ``guard(zone)`` entered for the length of every zone."""
    _guards.append(guard)


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
        f"(opened at {zone.opened}); the other ranks would never join it.",
        ranks=(zone.rank,),
        remedy="Do the collective on all ranks before, and hand its result to the code that one rank runs.",
    )


@contextmanager
def one_rank(rank: int) -> Iterator[None]:
    """Open a zone for this thread: inside, collectives raise CollectiveOnOneRank."""
    import_module("allranks.gate")
    zone = Zone(rank, call_site())
    token = _current.set(zone)
    try:
        with ExitStack() as stack:
            for guard in _guards:
                stack.enter_context(guard(zone))
            yield
    finally:
        _current.reset(token)
