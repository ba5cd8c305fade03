"""Whether chunks can be compressed here: the library is optional, and imported when it is needed."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from allranks.errors import AllranksError

KNOWN = ("zstd",)


def library(what: str) -> ModuleType:
    """Return ``checkpoint/zstd.py``. Raises AllranksError where its library is not installed; ``what`` needs it."""
    try:
        return import_module("allranks.checkpoint.zstd")
    except ModuleNotFoundError as error:
        if error.name != "zstandard":
            raise
        remedy = 'Install it: pip install "allranks[zstd]"'
        raise AllranksError(f"{what} needs zstandard, which is not installed.", remedy=remedy) from error


def check(compression: str | None) -> bool:
    """Return whether a Checkpointer compresses. Raises AllranksError where the name or its library is not known."""
    if compression is None:
        return False
    if compression not in KNOWN:
        raise AllranksError(f"compression={compression!r}: expected None or {' or '.join(map(repr, KNOWN))}.")
    library(f"compression={compression!r}")
    return True
