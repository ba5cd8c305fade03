"""Check numbers that a user gives to the data part, in one place; an error names the argument and its value."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

from allranks.errors import DataError

LARGEST = (1 << 63) - 1


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise DataError unless an argument is one of these texts."""
    if not (isinstance(value, str) and value in choices):
        raise DataError(f"{name}={value!r:.40}: expected {' or '.join(map(repr, choices))}.")


def check_number(name: str, value: Any, expected: str, *, least: int = 0, most: int = LARGEST) -> int:
    """Return an argument as an int. Raises DataError unless it is a whole number from ``least`` to ``most``.

    ``expected`` says what the number means. Integers of NumPy are accepted; floats, NaN and bools are not.
    """
    try:
        number = least - 1 if isinstance(value, bool) else index(value)
    except TypeError:
        number = least - 1
    if not least <= number <= most:
        upper = "or more" if most == LARGEST else f"to {most:,}"
        raise DataError(f"{name}={value!r:.40}: expected {expected}, a whole number of {least:,} {upper}.")
    return number
