"""The bugs of the story, on demand: how people load a checkpoint by hand, and what goes wrong then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch
from model import TopoFlow
from torch import nn

BREAKS = {
    "partial-load": "strict=False, and the names are other ones: nothing is loaded",
    "rank0-load": "rank 0 loads before trainer.fit(): what the post-mortem took for its bug, and is none",
    "after-wrap": "rank 0 loads after DDP was made",
    "init-sync": "rank 0 loads before, and DDP is told not to send its weights to the others",
    "normalisation": "all is loaded, but the mean is not taken off the inputs, as it was in the training",
    "skipped-step": "rank 2 leaves out an update of its weights, in the middle of the training",
}
BY_HAND = ("rank0-load", "after-wrap", "init-sync")  # rank 0 alone loads, by itself


def load_by_hand(module: TopoFlow, path: str, *, renamed: bool = True) -> None:
    """``load_state_dict(strict=False)``, whose answer nobody reads; under the names of the module if ``renamed``."""
    weights: dict[str, Any] = torch.load(path, weights_only=True)["state_dict"]
    if renamed:
        weights = {
            name.replace("model.", "climax.").replace("fc1", "0").replace("fc2", "2"): value
            for name, value in weights.items()
        }
    module.load_state_dict(weights, strict=False)  # allranks: ignore[AR502] this is the bug


class LoadsOnRank0(pl.Callback):
    """Loads on rank 0 alone: in ``setup()``, or in ``on_fit_start()``, when DDP has been made."""

    def __init__(self, path: str, *, late: bool) -> None:
        self.path, self.late = path, late

    def setup(self, trainer: pl.Trainer, pl_module: TopoFlow, **_: Any) -> None:
        if not self.late and trainer.is_global_zero:
            load_by_hand(pl_module, self.path)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: TopoFlow) -> None:
        if self.late and trainer.is_global_zero:
            load_by_hand(pl_module, self.path)


class SkipsAStep(pl.Callback):
    """On rank 2, undoes the fifth update of the weights."""

    def __init__(self) -> None:
        self.before: list[torch.Tensor] = []

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        if trainer.global_rank == 2 and trainer.global_step == 4:
            self.before = [weight.detach().clone() for weight in pl_module.parameters()]

    @torch.no_grad()
    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        if trainer.global_rank == 2 and trainer.global_step == 5:
            for weight, before in zip(pl_module.parameters(), self.before, strict=True):
                weight.copy_(before)


def causes(name: str | None, path: str) -> list[pl.Callback]:
    """Return what makes the bug happen, where Lightning calls it."""
    made: dict[str, Callable[[], pl.Callback]] = {
        "after-wrap": lambda: LoadsOnRank0(path, late=True),
        "init-sync": lambda: LoadsOnRank0(path, late=False),
        "skipped-step": SkipsAStep,
    }
    return [made[name]()] if name in made else []


def weights_of(module: nn.Module) -> float:
    """Return one number that differs where weights do, to show what each rank holds."""
    return sum(weight.detach().double().abs().sum().item() for weight in module.parameters())
