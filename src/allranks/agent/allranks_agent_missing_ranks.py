"""Raise MissingRanks if a program under `allranks run` would wait for more ranks than the job has."""

from __future__ import annotations

import os


class MissingRanks(RuntimeError):
    """Raised when the program needs more processes than the job has, and has started none itself."""

    __module__ = "allranks"


def refuse(operation: str, wanted: int, *, hint: str = "") -> None:
    """Raise MissingRanks if `wanted` is more processes than the job has, and this process has started none itself."""
    size = int(os.environ.get("ALLRANKS_SIZE", wanted))
    if wanted <= size or has_children():
        return
    raise MissingRanks(
        f"rank {os.environ['ALLRANKS_RANK']} (host {os.environ['ALLRANKS_HOST']}): {operation}: expected a world of at "
        f"most {size}, as many as `allranks run` has started, found {wanted}: nobody starts the others. Start as many "
        f"(allranks run -n {wanted}), or have the program use {size}{hint.format(size=size)}."
    )


def has_children() -> bool:
    """Return whether this process has children that it has not waited for (reaped)."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
