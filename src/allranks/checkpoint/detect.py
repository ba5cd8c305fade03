"""Import torch only if the program has, and Zstandard only for compressed checkpoints."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from allranks.errors import AllranksError

KNOWN = ("zstd",)


def optimizer_steps() -> int:
    """Return how many optimizer steps of torch have begun since the first call.

    Returns 0 without torch, because JAX changes no state in place.
    """
    if "torch" not in sys.modules:
        return 0
    import allranks.checkpoint.torch as edge

    return edge.optimizer_steps()


def zstd_library(operation: str) -> ModuleType:
    """Return the module ``checkpoint/zstd.py``.

    Raises AllranksError, which names ``operation``, if zstandard is missing.
    """
    try:
        return import_module("allranks.checkpoint.zstd")
    except ModuleNotFoundError as error:
        if error.name != "zstandard":
            raise
        remedy = 'Install it: pip install "allranks[zstd]"'
        raise AllranksError(f"{operation} needs zstandard, which is not installed.", remedy=remedy) from error


def check_compression(compression: str | None) -> bool:
    """Return whether a Checkpointer compresses. Raises AllranksError for an unknown name or a missing library."""
    if compression is None:
        return False
    if compression not in KNOWN:
        raise AllranksError(f"compression={compression!r}: expected None or {' or '.join(map(repr, KNOWN))}.")
    zstd_library(f"compression={compression!r}")
    return True
