"""Read the state of the frameworks that this process has imported, without importing any."""

from __future__ import annotations

import sys
from types import FrameType

from allranks import agent
from allranks.hang.calls import CollectivesInFlight, RecentCalls


def collectives_in_flight() -> CollectivesInFlight | None:
    """Return the torch collectives in flight; None if they are unknown."""
    if "torch.distributed" not in sys.modules:
        return None
    import allranks.hang.torch as adapter

    return adapter.collectives_in_flight()


def recorded_collectives() -> RecentCalls:
    """Return the last collectives of all ranks that torch has recorded; no calls without torch."""
    if "torch.distributed" not in sys.modules:
        return RecentCalls()
    import allranks.hang.torch as adapter

    return adapter.recorded_collectives()


def watch_first_step() -> None:
    """Find out from now on when the first step of a torch optimizer ends. The training thread must call."""
    if "torch.distributed" in sys.modules:
        agent.load("allranks_agent_torch").watch_first_step()


def is_before_first_step() -> bool:
    """Return whether no step of a torch optimizer has ended; False if nobody watches that, and in programs of JAX."""
    module = sys.modules.get("allranks_agent_torch")
    return module is not None and module.has_ended_a_step is False


def describe_group(name: str) -> str:
    """Return a description for people of the torch group with this name."""
    import allranks.hang.torch as adapter

    return adapter.describe_group(name)


def peer_of(frame: FrameType, call: str) -> int | None:
    """Return the rank with which a frame of torch's ``call`` (send or recv) moves data; None if that is unknown."""
    import allranks.hang.torch as adapter

    given, end = frame.f_locals, "dst" if "send" in call else "src"
    if isinstance(rank := given.get(end), int):
        return rank
    rank = given.get(f"group_{end}")
    return adapter.global_rank(given.get("group"), rank) if isinstance(rank, int) else None


def in_lockstep() -> bool:
    """Return whether lockstep compares the collectives of this process."""
    return "allranks.gate.lockstep.monitor" in sys.modules


def torch_timeout(group: str = "") -> float | None:
    """Return the timeout, in seconds, of the collectives of a torch group (default: all ranks); None without torch."""
    if "torch.distributed" not in sys.modules:
        return None
    import allranks.hang.torch as adapter

    return adapter.gives_up_after(group) if group else adapter.gives_up_after()
