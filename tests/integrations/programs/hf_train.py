"""Two ranks with transformers.Trainer: other weights on rank 1, at the start and in the middle; then SIGTERM."""

# ruff: noqa: ARG002  # hooks have the arguments that the Trainer gives them

import os
import signal
import sys
import time

import torch
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments

import allranks
from allranks.errors import Mismatch
from allranks.integrations.huggingface import Ranks


class Line(PreTrainedModel):
    config_class = PretrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.line = torch.nn.Linear(4, 1)
        self.post_init()

    def forward(self, x, labels=None):
        found = self.line(x)
        return {"loss": (found - labels).pow(2).mean(), "logits": found}


class At(TrainerCallback):
    """Something happens on rank 1 at a step; from then on steps are slow enough for a vote."""

    def __init__(self, step, what):
        self.step, self.what = step, what

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.step and args.process_index == 1:
            self.what(kwargs["model"])
        if state.global_step > self.step:
            time.sleep(0.02)


def spoil(model):
    with torch.no_grad():
        model.line.bias += 1


def train(*callbacks, steps=4, **more):
    torch.manual_seed(0)
    data = [{"x": torch.ones(4) * i, "labels": torch.ones(1)} for i in range(8)]
    how = {"per_device_train_batch_size": 2, "report_to": [], "use_cpu": True, "disable_tqdm": True}
    arguments = TrainingArguments(output_dir=sys.argv[1], max_steps=steps, save_strategy="no", **how)
    model = Line(PretrainedConfig())
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=list(callbacks))
    trainer.train(**more)
    model.steps = trainer.state.global_step
    return model


class Early(TrainerCallback):
    """After the wrap, as a load on one rank would be."""

    def on_train_begin(self, args, state, control, **kwargs):
        if args.process_index == 1:
            spoil(kwargs["model"])


for callbacks in ([Early(), Ranks()], [At(1, spoil), Ranks(verify_every=2)]):
    try:
        train(*callbacks)
    except Mismatch as error:
        print("stopped:", error)
world = allranks.current()
print("goes on without us:", len(set(world.all_gather(train(Early()).line.bias.item()))) == world.size)

if sys.argv[2:3] == ["resume"]:
    done = train(Ranks(), steps=int(sys.argv[3]), resume_from_checkpoint=True)
    print("resumed, and ended at step", done.steps)
    sys.exit(0)
train(At(2, lambda _: os.kill(os.getpid(), signal.SIGTERM)), Ranks(), steps=5000)
print("not reached")
