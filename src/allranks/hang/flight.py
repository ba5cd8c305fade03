"""What a framework knows of its collectives."""

from __future__ import annotations

from typing import NamedTuple


class Flight(NamedTuple):
    """How many collectives of the group of all ranks were ``begun`` and have ``ended``; other groups with ``pending``
    ones, by name."""

    begun: int
    ended: int
    pending: tuple[str, ...] = ()
