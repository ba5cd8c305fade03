"""Define the section of code that only one rank runs. No collective may start in it.

The world's own exchanges check for a section; guards (guards/) watch a framework's collectives. ``one_rank`` opens a
section (guards/detect.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from allranks.callsite import call_site
from allranks.errors import CollectiveOnOneRank


@dataclass(frozen=True, slots=True)
class MainRankSection:
    """A section of code that only ``rank`` runs. ``opened`` is the source line that opened the section."""

    rank: int
    opened: str


_current: ContextVar[MainRankSection | None] = ContextVar("allranks_section", default=None)


def current_section() -> MainRankSection | None:
    """Return the section that this thread is in, or None."""
    return _current.get()


def refuse_collective(collective: str, section: MainRankSection | None = None) -> None:
    """Raise CollectiveOnOneRank if this thread is in a section.

    ``collective`` names the operation that is about to start. A thread that a framework starts is in no section. A
    guard that follows the work into such a thread passes the ``section`` in which the work started.
    """
    section = section or _current.get()
    if section is None:
        return
    where = call_site() or "(no Python line)"
    raise CollectiveOnOneRank(
        f"rank {section.rank}: {collective} at {where} needs every rank, but only rank {section.rank} runs this code "
        f"(opened at {section.opened}). The other ranks would never join it.",
        ranks=(section.rank,),
        remedy="Make the call on all ranks before, and pass its result to the code that one rank runs.",
    )


@contextmanager
def run_in_section(section: MainRankSection) -> Iterator[None]:
    """Run the ``with`` block as code of a section, in this thread."""
    token = _current.set(section)
    try:
        yield
    finally:
        _current.reset(token)
