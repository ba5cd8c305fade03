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
FLAX = "save_checkpoint_multiprocess"
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
SCRIPT = """\
import lightning as L
class Model(L.LightningModule):
    def training_step(self, batch, index):
        return batch.sum()
if __name__ == "__main__":
    trainer = L.Trainer(accelerator="gpu", devices=4, strategy="ddp")
    trainer.fit(Model(), ckpt_path="last")
"""
HELPED = SCRIPT.replace(
    "if __name__", "def made():\n    return L.Trainer(devices='auto', num_nodes=2)\nif __name__"
).replace('    trainer = L.Trainer(accelerator="gpu", devices=4, strategy="ddp")\n    trainer', "    made()")
CLI = """\
from lightning.pytorch.cli import LightningCLI
from model import Model
def main():
    cli = LightningCLI(Model, run=False)
    cli.trainer.fit(cli.model)
if __name__ == "__main__":
    main()
"""
FABRIC = """\
import lightning as L
fabric = L.Fabric(accelerator="cuda", devices=4)
fabric.launch()
model = fabric.setup(make())
"""
TRL = """\
from trl import GRPOConfig, GRPOTrainer
trainer = GRPOTrainer("Qwen/Qwen2-0.5B", reward_funcs=reward, args=GRPOConfig("out"))
trainer.train(resume_from_checkpoint=True)
trainer.save_model("out")
"""
RAY = """\
import os
import tempfile
import ray.train
import torch
from ray.train.torch import TorchTrainer, prepare_model
def work(config):
    model = prepare_model(torch.nn.Linear(2, 2))
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if ray.train.get_context().get_world_rank() == 0:
            torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
            checkpoint = ray.train.Checkpoint.from_directory(folder)
        ray.train.report({}, checkpoint=checkpoint)
TorchTrainer(work).fit()
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
        ["torch.save: only rank 0 writes"],
    ),
    "a file for each rank": (
        "checkpoint save",
        TORCH + "torch.save({}, f'rng-{rank}.pt')\n",
        ["torch.save: each process writes its own file"],
    ),
    "a temporary file": (
        "checkpoint save",
        TORCH + "with tempfile.TemporaryDirectory() as d:\n    torch.save({}, os.path.join(d, 'x.pt'))\n",
        [],
    ),
    "a collective checkpoint of one process": (
        "checkpoint save",
        JAX + "if jax.process_index() == 0:\n    checkpoints.save_checkpoint_multiprocess('/gcs/x', params, 1)\n",
        [f"AR201 {FLAX} is not reached by every rank: it depends on jax.process_index() == 0"],
    ),
    "a line of rank 0 that hangs": (
        "gating",
        TORCH + "x = torch.zeros(1)\nif rank == 0:\n    print(dist.all_reduce(x))\n",
        [],
    ),
    "a key that all have": ("randomness", JAX + "key = jax.random.PRNGKey(0)\n", ["seeded by jax.random.PRNGKey"]),
    "a key for each process": ("randomness", JAX + "key = jax.random.PRNGKey(jax.process_index())\n", []),
    "seeds of nnx": ("randomness", JAX + "from flax import nnx\nrngs = nnx.Rngs(0)\n", ["seeded by flax.nnx.Rngs"]),
    "a pipeline that is dealt out by number": (
        "data",
        JAX
        + "def rows(files):\n    return files.repeat().shard(jax.process_count(), jax.process_index())\nrows(all)\n",
        ["data is split by shard"],
    ),
    "a pipeline that is cut as a whole": (
        "data",
        JAX + "def rows(files):\n    return files.shard(8, 0)\nrows(all)\n",
        [],
    ),
    "what the reader is told of its process": (
        "data",
        JAX + "import tensorflow as tf\nat = tf.distribute.InputContext(jax.process_count(), jax.process_index())\n",
        ["data is split by tensorflow.distribute.InputContext"],
    ),
    "rows of each process": (
        "data",
        JAX + "batch = jax.make_array_from_process_local_data(sharding, rows)\n",
        ["each process gives jax.make_array_from_process_local_data its own rows"],
    ),
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
    "Lightning's usual script": (
        "initialisation",
        SCRIPT,
        ["lightning.pytorch.Trainer joins the processes"],
    ),
    "Lightning saves": (
        "checkpoint save",
        "from lightning.pytorch.callbacks import ModelCheckpoint\n"
        + SCRIPT.replace('"ddp")', '"ddp", callbacks=[ModelCheckpoint()])'),
        ["ModelCheckpoint saves for all ranks"],
    ),
    "a file that is called as a checkpoint is": (
        "checkpoint save",
        JAX + "import os\nif jax.process_index() == 0:\n    os.replace('tmp', 'step.msgpack')\n",
        ["os.replace: only rank 0 writes"],
    ),
    "what every rank reads": (
        "checkpoint load",
        TORCH + "state = torch.load('last.pt', map_location='cpu')\n",
        ["torch.load on every rank"],
    ),
    "Lightning resumes": ("checkpoint load", SCRIPT, ["lightning.pytorch.Trainer.fit: resumes on every rank"]),
    "a trainer that a function makes": ("sharding", HELPED, ["lightning.pytorch.Trainer wraps the model"]),
    "Lightning's command line": ("collectives", CLI, ["lightning.pytorch.Trainer.fit is reached by all ranks"]),
    "Composer's trainer": (
        "initialisation",
        "from composer import Trainer\ntrainer = Trainer(model=net, max_duration='1ep')\ntrainer.fit()\n",
        ["starts with composer.Trainer"],
    ),
    "Fabric wraps": ("sharding", FABRIC, ["lightning.fabric.Fabric wraps the model"]),
    "a trainer of TRL joins": ("initialisation", TRL, ["trl.GRPOTrainer joins the processes"]),
    "a trainer of TRL splits": ("data", TRL, ["data is split by trl.GRPOTrainer"]),
    "a trainer of TRL saves": ("checkpoint save", TRL, ["trl.GRPOTrainer.save_model: every rank calls it"]),
    "Ray starts": ("initialisation", RAY, ["ray.train.torch.TorchTrainer starts the processes"]),
    "Ray wraps": ("sharding", RAY, ["ray.train.torch.prepare_model wraps the model"]),
    "Ray saves": ("checkpoint save", RAY, ["ray.train.report: all ranks take part"]),
    "DeepSpeed wraps": (
        "sharding",
        "import deepspeed\nengine, *_ = deepspeed.initialize(model=make())\nengine.save_checkpoint('out')\n",
        ["deepspeed.initialize wraps the model"],
    ),
    "a vocabulary is no checkpoint": (
        "checkpoint save",
        TORCH + "import pickle\nif rank == 0:\n    pickle.dump({}, open('vocab.pkl', 'wb'))\n",
        [],
    ),
    "a tokenizer is no checkpoint": (
        "checkpoint save",
        TORCH + "if rank == 0:\n    tokenizer.save_pretrained('out')\n",
        [],
    ),
    "a load of rank 0 is no gating": (
        "gating",
        TORCH + "if rank == 0:\n    model.load_state_dict(torch.load('last.pt', map_location='cpu'))\n",
        [],
    ),
    "what is moved is told once": (
        "gating",
        TORCH + "if rank == 0:\n    os.replace('a.pt', 'b.pt')\n",
        ["os.replace on rank 0 only"],
    ),
    "a collective under a condition": (
        "collectives",
        TORCH + "if settings.waits:\n    dist.barrier()\n",
        [
            "torch.distributed.init_process_group is reached by all ranks",
            "torch.distributed.barrier: no rank is seen to leave it out",
        ],
    ),
    "rows of a rank": (
        "data",
        TORCH + "from torch.utils.data import DataLoader, Subset\n"
        "loader = DataLoader(Subset(whole, range(rank, 64, dist.get_world_size())))\n",
        ["torch.utils.data.DataLoader gets what depends on the rank"],
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
    assert row.verdict == ("not seen" if not told else "error" if told[0].startswith("AR") else "ok")


def test_a_trainer_that_another_file_makes_is_known() -> None:
    """The file that fits names no trainer."""
    files = {
        "build.py": "import lightning as L\ndef make_trainer(nodes):\n    return L.Trainer(num_nodes=nodes)\n",
        "train.py": "from build import make_trainer\ndef main(net):\n    make_trainer(2).fit(net)\nmain(None)\n",
    }
    outcome = check({path: text.encode() for path, text in files.items()}, Settings())
    told = {row.topic: [note.text for note in row.evidence] for row in outcome.rows}
    assert told["initialisation"] == ["lightning.pytorch.Trainer joins the processes"]
    assert told["collectives"] == ["lightning.pytorch.Trainer.fit is reached by all ranks"]
