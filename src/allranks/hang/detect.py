"""Query the frameworks that this process has imported. None is imported for it."""

from __future__ import annotations

import sys
from types import FrameType

from allranks.hang.calls import Calls
from allranks.hang.flight import Flight


def flight() -> Flight | None:
    """Return what torch's collectives are in flight; None where nobody knows."""
    if "torch.distributed" not in sys.modules:
        return None
    import allranks.hang.torch as adapter

    return adapter.flight()


def history() -> Calls:
    """Return the last collectives of all ranks that torch knows of."""
    if "torch.distributed" not in sys.modules:
        return Calls()
    import allranks.hang.torch as adapter

    return adapter.history()


def group_in_words(name: str) -> str:
    """Return what a person calls one of torch's groups."""
    import allranks.hang.torch as adapter

    return adapter.group_in_words(name)


def peer_of(frame: FrameType, call: str) -> int | None:
    """Return with which rank a frame of torch's ``call`` (send, recv) moves data; None where it does not say."""
    import allranks.hang.torch as adapter

    given, end = frame.f_locals, "dst" if "send" in call else "src"
    if isinstance(rank := given.get(end), int):
        return rank
    rank = given.get(f"group_{end}")
    return adapter.global_rank(given.get("group"), rank) if isinstance(rank, int) else None


def in_lockstep() -> bool:
    """Say whether this process has its collectives compared."""
    return "allranks.gate.lockstep.monitor" in sys.modules


def torch_timeout(group: str = "") -> float | None:
    """Return when the collectives of a group of torch (default: all ranks) time out, in seconds; None without torch."""
    if "torch.distributed" not in sys.modules:
        return None
    import allranks.hang.torch as adapter

    return adapter.gives_up_after(group) if group else adapter.gives_up_after()
