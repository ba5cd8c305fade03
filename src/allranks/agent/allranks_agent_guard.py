"""Start the probe of `allranks rehearse` at once, and the guard of `--guard` once the program has joined."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

import allranks_agent_hang as hang  # type: ignore[import-not-found]

_has_begun = False


def is_wanted() -> bool:
    return os.environ.get("ALLRANKS_GUARD", "") in ("1", "any-line", "calls")


def has_gloo() -> bool:
    """Return whether this rank is rehearsed and has torch.distributed.

    Python destroys the groups of gloo at its end, and joins their threads while it holds the interpreter's lock. A
    thread that waits for that lock never ends then, or aborts the process. No script is to blame for that.
    """
    return "ALLRANKS_PROBE" in os.environ and "torch.distributed.distributed_c10d" in sys.modules


def before_imports() -> None:
    """Prepare a process that imports the frameworks for ranks that are rehearsed and are forked from it."""
    if "ALLRANKS_PROBE" in os.environ:
        hang.package("allranks.rehearse.accelerator.start").attach()


def on_report(kind: str, **fields: Any) -> None:
    """Handle a message of the agent: start the probe at once, and the guard once this rank has joined all others."""
    global _has_begun
    if kind == "started" and "ALLRANKS_PROBE" in os.environ:
        hang.package("allranks.rehearse.probe.start").begin()
    if not is_wanted() or kind != "joined" or _has_begun or not fields["size"] == int(os.environ["ALLRANKS_SIZE"]) > 1:
        return
    _has_begun = True
    try:
        how = os.environ["ALLRANKS_GUARD"]
        guard = hang.package("allranks.guard.start")
        guard.begin(fields["backend"], lines=how != "any-line", values=how != "calls")
    except Exception:
        rank = os.environ["ALLRANKS_RANK"]
        print(f"allranks: rank {rank}: --guard failed to start:\n{traceback.format_exc()}", file=sys.stderr)
        raise
