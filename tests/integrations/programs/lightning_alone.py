"""Started once: Lightning starts the other ranks. Rank 1 is given other weights than rank 0."""

import sys

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


if __name__ == "__main__":
    how, folder, early = sys.argv[1:]
    if early == "early":
        allranks.init()
    strategy = DDPStrategy(start_method=how)
    lit.trainer(folder, Spoil(), Ranks(), devices=2, strategy=strategy, max_steps=2).fit(lit.Net())
    print("trained")
