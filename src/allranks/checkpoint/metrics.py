"""Numbers that are saved beside a state: a loss, an accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allranks.arguments import expect
from allranks.errors import CannotStore


def as_numbers(metrics: Any) -> dict[str, float]:
    """Return metrics as floats: numbers, and arrays of one element of any framework.

    Raises CannotStore for what is no number, BadArgument for what is no mapping of names.
    """
    fits = isinstance(metrics, Mapping) and all(isinstance(name, str) for name in metrics)
    expect(fits, "metrics", metrics, "numbers by name: {'loss': 0.5}")
    numbers = {}
    for name, value in metrics.items():
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError) as error:
            raise CannotStore(f"metric {name!r} is no number: {value!r:.80} ({error}).", leaf=name) from error
    return numbers
