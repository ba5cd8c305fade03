"""Begin to guard a program that has joined the other ranks, where `allranks run --guard` asks for it."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

import allranks_agent_hang as hang  # type: ignore[import-not-found]

_begun = False


def is_wanted() -> bool:
    return os.environ.get("ALLRANKS_GUARD", "") in ("1", "any-line")


def heard(kind: str, **fields: Any) -> None:
    """Take note of what the agent tells the launcher; begin once this rank has joined all others."""
    global _begun
    if not is_wanted() or kind != "joined" or _begun or not fields["size"] == int(os.environ["ALLRANKS_SIZE"]) > 1:
        return
    _begun = True
    try:
        hang.package("allranks.guard.start").begin(fields["backend"], lines=os.environ["ALLRANKS_GUARD"] != "any-line")
    except Exception:
        rank = os.environ["ALLRANKS_RANK"]
        print(f"allranks: rank {rank}: --guard has failed:\n{traceback.format_exc()}", file=sys.stderr)
        raise
