"""Lightning over a loader of ours: three epochs with a checkpoint at every step; then resumed from each, by itself."""

import json
import sys
from itertools import chain
from pathlib import Path

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import allranks
from allranks.integrations.torch import Batches, BatchSampler

SAMPLES, BATCH, EPOCHS = 48, 8, 3
folder, kind, part = sys.argv[1:]
rows = [{"x": one} for one in range(SAMPLES)]
data = allranks.Dataset.sequence(rows, seed=1).batch(BATCH)
world = allranks.init("torch")
RESUMES = kind in ("Loader", "Batches", "StatefulDataLoader")  # Lightning saves no plain DataLoader


def joined(lists):
    return list(chain.from_iterable(lists))


def make():
    if kind == "Loader":
        return data.loader(world)
    if kind == "BatchSampler":
        return DataLoader(rows, batch_sampler=BatchSampler(rows, world, global_batch=BATCH), num_workers=1)
    batches = Batches(data, world)
    if kind == "DataLoader":
        return DataLoader(batches, batch_size=None, num_workers=1, persistent_workers=True)
    return StatefulDataLoader(batches, batch_size=None, num_workers=0) if kind == "StatefulDataLoader" else batches


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(1, 1)
        self.steps, self.validated = [], []

    def training_step(self, batch, _):
        self.steps.append(batch["x"].tolist())
        return self.line(batch["x"][:, None].float()).mean()

    def validation_step(self, batch, _):
        if not self.trainer.sanity_checking:  # which breaks off after two batches
            self.validated += batch["x"].tolist()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-6)


def fit(*callbacks, **more):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    how = {"enable_checkpointing": bool(callbacks), "use_distributed_sampler": kind != "BatchSampler"}
    trainer, net = Trainer(max_epochs=EPOCHS, callbacks=list(callbacks), **quiet, **how), Net()
    trainer.fit(net, make(), Batches(data, world), **more)
    ranks = world.all_gather(net.steps)
    return [joined(parts) for parts in zip(*ranks, strict=True)], world.all_gather(net.validated)


per_epoch = SAMPLES // BATCH
if part == "train":
    keep = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=1, save_top_k=-1)
    steps, validated = fit(keep)
    epochs = [steps[at : at + per_epoch] for at in range(0, len(steps), per_epoch)]
    assert all(sorted(joined(epoch)) == list(range(SAMPLES)) for epoch in epochs), [len(one) for one in epochs]
    assert len({str(epoch) for epoch in epochs}) == EPOCHS
    assert sorted(joined(validated)) == sorted(list(range(SAMPLES)) * EPOCHS)
    if world.is_main:
        Path(folder, "seen.json").write_text(json.dumps({"epochs": len(epochs), "steps": steps}))
elif RESUMES:
    steps = json.loads(Path(folder, "seen.json").read_text())["steps"]
    for at in (1, per_epoch - 1, per_epoch, per_epoch + 2, 2 * per_epoch):
        assert fit(ckpt_path=f"{folder}/step={at}.ckpt")[0] == steps[at:], at
print("kept")
