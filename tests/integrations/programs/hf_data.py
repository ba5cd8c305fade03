"""transformers.Trainer over a loader of ours: three epochs; then resumed in the middle, with and without our state."""

import sys
from itertools import chain

import torch
from torch.utils.data import DataLoader
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

import allranks
from allranks.integrations.torch import Batches, BatchSampler

SAMPLES, BATCH, EPOCHS, STOP = 48, 8, 3, 8
folder, kind = sys.argv[1:]
rows = [{"x": one} for one in range(SAMPLES)]
data = allranks.Dataset.sequence(rows, seed=1).batch(BATCH)
world = allranks.init("torch")


class Net(PreTrainedModel):
    config_class = PretrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.line = torch.nn.Linear(1, 1)
        self.steps = []
        self.post_init()

    def forward(self, x, **_):
        self.steps.append(x.tolist())
        return {"loss": self.line(x[:, None].float()).mean()}


class Loop(Trainer):
    def get_train_dataloader(self):
        self.reads = Batches(data, world, state=state) if kind == "Batches" else sampler(state)
        if kind == "Batches":
            return self.accelerator.prepare(DataLoader(self.reads, batch_size=None, num_workers=1))
        return self.accelerator.prepare(DataLoader(rows, batch_sampler=self.reads))


def sampler(state):
    return BatchSampler(rows, world, global_batch=BATCH, state=state)


def train(steps, **more):
    quiet = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "steps", "save_steps": STOP}
    net = Net(PretrainedConfig())
    trainer = Loop(net, TrainingArguments(folder, max_steps=steps, **quiet), train_dataset=rows)
    trainer.train(**more)
    ranks = world.all_gather(net.steps)
    return [list(chain.from_iterable(parts)) for parts in zip(*ranks, strict=True)], trainer.reads.state().gathered()


state, per_epoch = None, SAMPLES // BATCH
whole, _ = train(EPOCHS * per_epoch)
epochs = [whole[at : at + per_epoch] for at in range(0, len(whole), per_epoch)]
assert all(sorted(chain.from_iterable(epoch)) == list(range(SAMPLES)) for epoch in epochs), [len(one) for one in epochs]
assert len({str(epoch) for epoch in epochs}) == EPOCHS
begun, reached = train(STOP)
assert begun == whole[:STOP]
for state in (None, reached):
    rest, _ = train(EPOCHS * per_epoch, resume_from_checkpoint=f"{folder}/checkpoint-{STOP}")
    assert rest == whole[STOP:], (state, len(rest))
print("kept")
