"""Cast arrays to another dtype. Numbers may be rounded; a number that would become infinite raises an error."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import ml_dtypes
import numpy as np

from allranks.arrays.leaves.numpy import DTYPES
from allranks.errors import CannotStore

Array = np.ndarray[Any, np.dtype[Any]]


def cast_into(
    target: Array, numbers: Array, *, leaf_path: str, casting: Literal["unsafe", "same_kind"] = "unsafe"
) -> None:
    """Fill an array with numbers, rounded to its dtype. Raises CannotStore for a number that is too large for it."""
    try:
        with np.errstate(over="raise"):
            np.copyto(target, numbers, casting=casting)
    except FloatingPointError:
        too_large = True
    else:  # NumPy detects it for its own dtypes only, not for bfloat16 and float8
        too_large = _may_overflow(numbers.dtype, target.dtype) and _has_overflown(target, numbers)
    if too_large:
        raise CannotStore(
            f"leaf {leaf_path!r} has {numbers.dtype} numbers that are too large for {target.dtype}: expected numbers "
            "that the dtype can represent.",
            leaf=leaf_path,
            remedy="Use a dtype with a wider range.",
        )


_limits: Callable[[np.dtype[Any]], Any] = ml_dtypes.finfo  # which has no types


@lru_cache
def _may_overflow(found: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    if found == wanted or wanted.isbuiltin != 2:  # only dtypes of ml_dtypes
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


def is_castable(stored_dtype: str, wanted_dtype: str) -> bool:
    """Return whether a leaf may be cast between two dtypes: to a wider dtype of its family, or from float to float."""
    return _dtype_family(stored_dtype) == _dtype_family(wanted_dtype) != "" and (
        _dtype_family(stored_dtype) == "float" or is_widening(stored_dtype, wanted_dtype)
    )


def _dtype_family(dtype: str) -> str:
    """Return "float", "int", "complex" or "". No cast crosses families: an integer may be a quantised float."""
    return next((family for family in ("float", "int", "complex") if family in dtype), "")


def is_widening(stored_dtype: str, wanted_dtype: str) -> bool:
    """Return whether the dtype ``wanted_dtype`` can represent every number of the dtype ``stored_dtype``."""
    return bool(np.can_cast(DTYPES[stored_dtype], DTYPES[wanted_dtype], "safe"))
