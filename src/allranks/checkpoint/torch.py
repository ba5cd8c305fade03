"""The steps of torch's optimizers in this process, counted as they begin."""

from __future__ import annotations

from typing import Any

from torch.optim.optimizer import register_optimizer_step_pre_hook

_begun = 0


def _note(*_: Any) -> None:
    global _begun
    _begun += 1


register_optimizer_step_pre_hook(_note)


def optimizer_steps() -> int:
    """Return how many steps have begun since this file was imported."""
    return _begun
