"""Count the optimizer steps of torch that begin in this process."""

from __future__ import annotations

from typing import Any

from torch.optim.optimizer import register_optimizer_step_pre_hook

_begun = 0


def _count_begun(*_: Any) -> None:
    global _begun
    _begun += 1


register_optimizer_step_pre_hook(_count_begun)


def optimizer_steps() -> int:
    """Return how many optimizer steps have begun since this file was imported."""
    return _begun
