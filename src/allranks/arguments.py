"""Refuse an argument that makes no sense, by its name, before anything is done with it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from allranks.errors import BadArgument


def expect(fits: object, name: str, value: object, expected: str) -> None:
    """Raise BadArgument unless ``fits``."""
    if not fits:
        raise BadArgument(f"{name}={value!r:.200}: expected {expected}.")


def is_count(value: object) -> bool:
    """Return whether this is an int above 0."""
    return type(value) is int and value > 0


def is_positive(value: object) -> bool:
    """Return whether this is a number above 0."""
    return isinstance(value, int | float) and type(value) is not bool and value > 0


def several(value: Any) -> tuple[Any, ...] | None:
    """Return what was given as a list or another iterable; None for what is none: a text, a mapping, a number."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        return None
    return tuple(value)
