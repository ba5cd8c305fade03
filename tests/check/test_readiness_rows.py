"""What speaks for a row of the readiness report, and what does not."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check

TORCH = """\
import os
import tempfile
import torch
import torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
model = torch.nn.Linear(2, 2)
"""
JAX = """\
import jax
from flax.training import checkpoints
jax.distributed.initialize()
params = {}
"""
LIGHTNING = """\
import lightning as L
class Model(L.LightningModule):
    def on_train_epoch_end(self):
        self.log("loss", self.loss, sync_dist=True)
trainer = L.Trainer(devices=8, strategy="ddp")
trainer.fit(Model())
if trainer.global_rank == 0:
    print("done")
"""
TRANSFORMERS = """\
import torch.distributed as dist
from transformers import Trainer
trainer = Trainer(None)
trainer.train()
if dist.get_rank() == 0:
    print(1)
"""
# Topic, program, and what is told of it, where anything is.
ROWS_OF: dict[str, tuple[str, str, list[str]]] = {
    "a checkpoint that every rank reads": (
        "checkpoint load",
        TORCH + "model.load_state_dict(torch.load('last.pt', map_location='cpu'))\n",
        ["torch.nn.Linear.load_state_dict on every rank"],
    ),
    "a checkpoint inside a wrapper": (
        "checkpoint load",
        TORCH + "wrapped = torch.nn.parallel.DistributedDataParallel(model)\n"
        "wrapped.module.load_state_dict(torch.load('last.pt', map_location='cpu'))\n",
        ["torch.nn.Module.load_state_dict on every rank"],
    ),
    "a checkpoint that rank 0 reads": (
        "checkpoint load",
        TORCH + "if rank == 0:\n    model.load_state_dict(torch.load('last.pt', map_location='cpu'))\n",
        [],
    ),
    "a checkpoint that rank 0 writes": (
        "checkpoint save",
        TORCH + "if rank == 0:\n    torch.save({}, 'last.pt')\n",
        ["torch.save: rank 0 alone writes"],
    ),
    "a file for each rank": (
        "checkpoint save",
        TORCH + "torch.save({}, f'rng-{rank}.pt')\n",
        ["torch.save: each process writes a file of its own"],
    ),
    "a temporary file": (
        "checkpoint save",
        TORCH + "with tempfile.TemporaryDirectory() as d:\n    torch.save({}, os.path.join(d, 'x.pt'))\n",
        [],
    ),
    "a collective checkpoint of one process": (
        "checkpoint save",
        JAX + "if jax.process_index() == 0:\n    checkpoints.save_checkpoint_multiprocess('/gcs/x', params, 1)\n",
        [],
    ),
    "a line of rank 0 that hangs": (
        "gating",
        TORCH + "x = torch.zeros(1)\nif rank == 0:\n    print(dist.all_reduce(x))\n",
        [],
    ),
    "a key that all have": ("randomness", JAX + "key = jax.random.PRNGKey(0)\n", ["seeded by jax.random.PRNGKey"]),
    "a key for each process": ("randomness", JAX + "key = jax.random.PRNGKey(jax.process_index())\n", []),
    "Lightning starts": (
        "initialisation",
        LIGHTNING,
        ["lightning.pytorch.Trainer joins the processes"],
    ),
    "Lightning wraps": (
        "sharding",
        LIGHTNING,
        ["lightning.pytorch.Trainer wraps the model"],
    ),
    "transformers wraps": (
        "sharding",
        TRANSFORMERS,
        ["transformers.Trainer wraps the model"],
    ),
}


@pytest.mark.parametrize("case", ROWS_OF)
def test_a_row_tells_what_speaks_for_it(case: str) -> None:
    """And is not good by what a finding stands at, or by what says nothing of several processes."""
    topic, text, told = ROWS_OF[case]
    outcome = check({"train.py": textwrap.dedent(text).encode()}, Settings())
    (row,) = (row for row in outcome.rows if row.topic == topic)
    assert [note.text for note in row.evidence] == told
    assert row.verdict == ("good" if told else "not seen")
