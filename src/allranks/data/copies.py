"""Copy those values of samples that something else refers to, which may change them later.

A function may fill one array again for each sample, and a list of samples holds its arrays for the next epoch. A copy
costs as much as the memory of the value. So a value that nothing else refers to is not copied.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any

import numpy as np

_FIXED = frozenset({bool, int, float, complex, str, bytes, type(None)})


def take_sample(held: list[Any], given: Any = None) -> Any:
    """Return the only value of ``held``, with copies of all arrays, tensors, lists and dicts that others refer to.

    Also of those inside of it. Objects of other types are not copied. Neither are the values of the sample ``given``,
    or of a dict of columns, if the value has them under the same names.
    """
    value = held[0]
    if value is given:
        return value
    if type(value) is not dict or getrefcount(value) > _IN_LIST:
        return copied(value)
    for name, one in value.items():
        if type(one) in _FIXED:
            continue
        if getrefcount(one) > _IN_DICT:
            if type(given) is not dict or given.get(name) is not one:
                value[name] = copied(one)
        elif not isinstance(one, np.ndarray) or (one.base is not None and _has_shared_memory(one)):
            value[name] = copied(one)
    return value


def copied(value: Any) -> Any:
    """Return a copy of a value, and of the values inside of it."""
    kind = type(value)
    if kind in _FIXED:
        return value
    if isinstance(value, np.ndarray):
        return value.copy("K")
    if kind is dict:
        return {name: copied(one) for name, one in value.items()}
    if kind in (list, tuple):
        return kind(value) if _FIXED.issuperset(map(type, value)) else kind(map(copied, value))
    if hasattr(kind, "__array__") and hasattr(kind, "clone"):  # a tensor, which does not show who has its memory
        return value.clone()
    return value


def _has_shared_memory(array: np.ndarray[Any, Any]) -> bool:
    """Return whether a view is one of memory that others refer to, or that another library has."""
    references = getrefcount(array.base)
    base: Any = array.base
    if isinstance(base, bytes):
        return False
    return not isinstance(base, np.ndarray) or references > _IN_VIEW or base.base is not None


def _count_in_list(held: list[Any]) -> int:
    value = held[0]
    return getrefcount(value) if value else 0


def _count_in_dict(value: dict[str, Any]) -> int:
    for name, one in value.items():
        if name:
            return getrefcount(one)
    return 0


def _count_in_view(array: np.ndarray[Any, Any]) -> int:
    return getrefcount(array.base)


# The references to a value that nothing else refers to: their number differs between versions of Python.
_IN_LIST = _count_in_list([{"": 0}])
_IN_DICT = _count_in_dict({"x": np.empty(1)})
_IN_VIEW = _count_in_view(np.empty(2)[:1])
