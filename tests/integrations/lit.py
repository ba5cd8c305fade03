"""A small LightningModule, and a Trainer without ornaments, for the tests of several ranks."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch.utils.data import DataLoader, TensorDataset


class Net(LightningModule):
    """A line with a batch norm, whose data is the same at every step: where it was stopped makes no difference."""

    def __init__(self, seed: int = 0, rows: int = 64) -> None:
        super().__init__()
        self.save_hyperparameters()
        torch.manual_seed(seed)
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
        self.rows = rows

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        loss = (self.net(batch[0] + self.global_rank) - 1).pow(2).mean()
        self.log("loss", loss, sync_dist=True)
        return loss

    def validation_step(self, batch: Any, _: int) -> None:
        self.log("val_loss", self.net(batch[0]).pow(2).mean(), sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), 1e-2, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2])]

    def train_dataloader(self) -> Any:
        rows = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
        return DataLoader(TensorDataset(rows.repeat(self.rows // 2, 1)), batch_size=2)

    val_dataloader = train_dataloader


class Told(Callback):
    """SIGTERM comes to one rank in the middle of the training; from then on steps are slow enough for a vote."""

    def __init__(self, rank: int, *, at: int) -> None:
        self._rank, self._at = rank, at

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self._at and trainer.global_rank == self._rank:
            os.kill(os.getpid(), signal.SIGTERM)
        if trainer.global_step > self._at:
            time.sleep(0.02)


def trainer(folder: Path | None, *callbacks: Any, **more: Any) -> Trainer:
    """A Trainer on CPUs that shows nothing."""
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    plain = {"accelerator": "cpu", "limit_val_batches": 0, "num_sanity_val_steps": 0, "default_root_dir": folder}
    plain |= {"use_distributed_sampler": False}  # which shuffles
    keeps = {"enable_checkpointing": any(type(one).__name__ == "ModelCheckpoint" for one in callbacks)}
    return Trainer(callbacks=list(callbacks), **{**quiet, **plain, **keeps, **more})
