"""Two ranks, started by Lightning where nobody else has: rank 1 has other weights than rank 0, or stops at a step."""

# ruff: noqa: ARG002  # hooks have the arguments that Lightning gives them

import sys
import time

import lit
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import DDPStrategy

import allranks
from allranks.integrations.lightning import Ranks


class Spoil(Callback):
    def on_fit_start(self, trainer, pl_module):
        if trainer.global_rank == 1:
            torch.nn.init.ones_(pl_module.net[2].weight)


class Stall(Callback):
    def on_before_backward(self, trainer, pl_module, loss):
        if trainer.global_rank == 1 and trainer.global_step == 1:
            time.sleep(1000)


if __name__ == "__main__":
    how, folder, fault = sys.argv[1:]
    if fault == "early":
        allranks.init()
    strategy = DDPStrategy(start_method=how)
    lit.trainer(
        folder, Stall() if fault == "stall" else Spoil(), Ranks(), devices=2, strategy=strategy, max_steps=2
    ).fit(lit.Net())
    print("trained")
