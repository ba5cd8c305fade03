"""Choose the framework adapters of this process: only for frameworks that the program has imported."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np


def import_adapter(name: str) -> ModuleType | None:
    """Return the module ``readiness/jax.py`` or ``readiness/torch.py``; None if that framework is not imported."""
    return import_module(f"allranks.readiness.{name}") if name in sys.modules else None


def has_jaxlib() -> bool:
    """Return whether jaxlib, which can read XLA's flags, is installed."""
    return find_spec("jaxlib") is not None


def array_of(value: object) -> tuple[np.ndarray[Any, Any] | None, bool]:
    """Return this process's part of an array (or a generator's state), and whether it holds JAX keys.

    The array is None for other values.
    """
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value), _is_raw_key(np.asarray(value))
    if isinstance(value, np.random.Generator):
        state = repr(value.bit_generator.state).encode()
        return np.frombuffer(state, np.uint8).reshape(1, -1), False
    for name in ("jax", "torch"):
        adapter = import_adapter(name)
        array = adapter.as_array(value) if adapter is not None else None
        if adapter is not None and array is not None:
            return array, name == "jax" and (adapter.is_key(value) or _is_raw_key(array))
    return None, False


def _is_raw_key(array: np.ndarray[Any, Any]) -> bool:
    """Return whether an array looks like a result of jax.random.PRNGKey: two or four words of 32 bits a key."""
    return array.dtype == np.uint32 and array.ndim >= 1 and array.shape[-1] in (2, 4)
