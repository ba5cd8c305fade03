"""Import torch or Zstandard only where the program has torch, or a checkpoint is compressed."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from allranks.errors import AllranksError

KNOWN = ("zstd",)


def optimizer_steps() -> int:
    """Return how many steps optimizers have begun since this was first asked; 0 where none changes a state in place."""
    if "torch" not in sys.modules:
        return 0
    import allranks.checkpoint.torch as edge

    return edge.optimizer_steps()


def zstd_library(what: str) -> ModuleType:
    """Return ``checkpoint/zstd.py``. Raises AllranksError where its library is not installed; ``what`` needs it."""
    try:
        return import_module("allranks.checkpoint.zstd")
    except ModuleNotFoundError as error:
        if error.name != "zstandard":
            raise
        remedy = 'Install it: pip install "allranks[zstd]"'
        raise AllranksError(f"{what} needs zstandard, which is not installed.", remedy=remedy) from error


def check_compression(compression: str | None) -> bool:
    """Return whether a Checkpointer compresses. Raises AllranksError where the name or its library is not known."""
    if compression is None:
        return False
    if compression not in KNOWN:
        raise AllranksError(f"compression={compression!r}: expected None or {' or '.join(map(repr, KNOWN))}.")
    zstd_library(f"compression={compression!r}")
    return True
