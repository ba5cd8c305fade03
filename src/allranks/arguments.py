"""Check arguments before anything is done with them; an error names the argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from allranks.errors import BadArgument


def expect(fits: object, name: str, value: object, expected: str) -> None:
    """Raise BadArgument unless ``fits`` is true. ``expected`` says what would be accepted."""
    if not fits:
        raise BadArgument(f"{name}={value!r:.200}: expected {expected}.")


def is_count(value: object) -> bool:
    """Return whether the value is an int above 0."""
    return type(value) is int and value > 0


def is_positive(value: object) -> bool:
    """Return whether the value is a number above 0."""
    return isinstance(value, int | float) and type(value) is not bool and value > 0


def several(value: Any) -> tuple[Any, ...] | None:
    """Return the items of a list or another iterable as a tuple.

    Return None for a text, bytes, a mapping, or one value.
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        return None
    return tuple(value)
