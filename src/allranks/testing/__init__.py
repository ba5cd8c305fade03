"""Tools for tests: ``rehearse`` runs a script as N ranks and judges it; the pytest plugin is in ``plugin``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allranks.testing.rehearsal import rehearse as rehearse


def __getattr__(name: str) -> Any:
    if name != "rehearse":
        raise AttributeError(f"module 'allranks.testing' has no attribute {name!r}")
    return import_module("allranks.testing.rehearsal").rehearse
