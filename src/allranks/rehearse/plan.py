"""Define what a user wants to rehearse, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from allranks.launch.job import Target
from allranks.rehearse.scenario import DEFAULT, Name


@dataclass(frozen=True, slots=True)
class Plan:
    """What to rehearse, and how. ``budget`` is in seconds: no run starts that would probably exceed it."""

    target: Target
    ranks: int
    devices: int | None = None
    hosts: int = 2
    steps: int = 20
    names: Sequence[Name] = DEFAULT
    seeds: int = 3
    seed: int = 1
    budget: float = 120.0
