"""Define the counts that a framework keeps of its collectives."""

from __future__ import annotations

from typing import NamedTuple


class Flight(NamedTuple):
    """Collectives of all ranks that were ``begun`` and have ``ended``; other groups with ``pending`` ones."""

    begun: int
    ended: int
    pending: tuple[str, ...] = ()
