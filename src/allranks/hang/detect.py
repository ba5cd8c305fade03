"""Ask the frameworks that this process has imported; none is imported for it."""

from __future__ import annotations

import sys


def flight() -> tuple[int, int] | None:
    """Return how many of torch's collectives were begun, and how many have ended; None where nobody knows."""
    if "torch.distributed" not in sys.modules:
        return None
    import allranks.hang.torch as adapter

    return adapter.flight()


def torch_timeout() -> float | None:
    """Return when torch's collectives time out, in seconds; None without torch."""
    if "torch.distributed" not in sys.modules:
        return None
    import allranks.hang.torch as adapter

    return adapter.gives_up_after()
