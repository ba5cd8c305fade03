"""Numbers into an array of another dtype: rounded where that is asked for, but never made infinite in silence."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import ml_dtypes
import numpy as np

from allranks.arrays.leaves.numpy import DTYPES
from allranks.errors import CannotStore

Array = np.ndarray[Any, np.dtype[Any]]


def cast_into(into: Array, numbers: Array, *, leaf: str, casting: Literal["unsafe", "same_kind"] = "unsafe") -> None:
    """Fill an array with numbers, to the nearest of its dtype. Raises CannotStore for one that is too large for it."""
    try:
        with np.errstate(over="raise"):
            np.copyto(into, numbers, casting=casting)
    except FloatingPointError:
        too_large = True
    else:  # NumPy hears of it from its own dtypes only, not from bfloat16 and float8
        too_large = _may_overflow(numbers.dtype, into.dtype) and _has_overflown(into, numbers)
    if too_large:
        raise CannotStore(
            f"leaf {leaf!r} holds {numbers.dtype} numbers that are too large for {into.dtype}.",
            leaf=leaf,
            remedy="Ask for a dtype of a wider range.",
        )


_limits: Callable[[np.dtype[Any]], Any] = ml_dtypes.finfo  # which has no types


@lru_cache
def _may_overflow(found: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    if found == wanted or wanted.isbuiltin != 2:  # of what is registered by others: ml_dtypes
        return False
    try:
        return bool(float(_limits(found).max) > float(_limits(wanted).max))
    except ValueError:  # no floats
        return False


def _has_overflown(into: Array, numbers: Array) -> bool:
    limits = _limits(into.dtype)
    if not numbers.size or (limits.min <= numbers.min() and numbers.max() <= limits.max):
        return False
    return bool((np.isfinite(numbers) & ~np.isfinite(into)).any())


def castable(found: str, wanted: str) -> bool:
    """Return whether values may become another dtype: wider ones, and floats that are rounded."""
    return _family(found) == _family(wanted) != "" and (_family(found) == "float" or widens(found, wanted))


def _family(dtype: str) -> str:
    """Numbers of two families do not mean the same: an integer where a float is wanted may be a quantized one."""
    return next((family for family in ("float", "int", "complex") if family in dtype), "")


def widens(found: str, wanted: str) -> bool:
    """Return whether each number of one dtype is one of the other."""
    return bool(np.can_cast(DTYPES[found], DTYPES[wanted], "safe"))
