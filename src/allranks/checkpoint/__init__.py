"""A step, whole or not at all. ``read`` and ``follow`` are for who reads a run, beside ``allranks.Checkpointer``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from allranks.checkpoint.following import follow as follow
    from allranks.checkpoint.reading import read as read

_PLACES = {"follow": "following", "read": "reading"}


def __getattr__(name: str) -> object:
    """Import a part when it is first asked for: importing the package imports nothing."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
