"""The documents that people wrote about their multi-process bugs, as small projects: the bug, the wrong fix, the right.

What must be found is exact for the rules named by ``select``; what is right must be clean under every rule that runs by
default, and under those.
"""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

Files = dict[str, str]


def codes(files: Files, *select: str) -> list[str]:
    sources = {path: text.encode() for path, text in files.items()}
    return sorted({f.code for f in check(sources, Settings(extend_select=select)).findings if f.severity != "info"})


TRAINER = """\
import jax
import numpy as np
from jax.experimental import multihost_utils
from lib.checkpoint import save_checkpoint


class Trainer:
    def __init__(self, params, folder):
        self.params, self.folder = params, folder

    def _params_for_host(self):
        return jax.tree.map(lambda x: multihost_utils.process_allgather(x, tiled=True), self.params)

    def fit(self, batches):
        for step, _ in enumerate(batches):
            if step % 1000 == 0:
                self._save_checkpoint(step)

    def _save_checkpoint(self, step):
{body}

def main(params, batches):
    jax.distributed.initialize()
    Trainer(params, "out").fit(batches)


main({{}}, [])
"""
LIBRARY = """\
import pickle


def save_checkpoint(params, path, step):
    with open(path, "wb") as file:
        pickle.dump({"params": params, "step": step}, file)
"""


def trainer(body: str) -> Files:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return {"train.py": TRAINER.format(body=lines), "lib/checkpoint.py": LIBRARY}


NAME = 'path = f"{self.folder}/model_step{step}.pkl"\n'
SAVE = "save_checkpoint(self._params_for_host(), path, step)"
WANDB = """\
import jax
import wandb


class Trainer:
    def __init__(self, config):
        self._wandb = None
        {gate}self._init_wandb(config)

    def _init_wandb(self, config):
        self._wandb = wandb.init(project="seqcond", config=config)


jax.distributed.initialize()
Trainer({{}})
"""
SHARDED = """\
import jax
from datasets import load_dataset
{more}

def iterate(tokenizer):
    data = load_dataset("PleIAs/SYNTH", split="train", streaming=True)
    {loop}


def batches(tokenizer, mesh):
    for tokens in iterate(tokenizer):
        yield jax.make_array_from_process_local_data(mesh, tokens)


jax.distributed.initialize()
for batch in batches(None, None):
    print(batch)
"""
MODULO = """for i, item in enumerate(data):
        if i % jax.process_count() != jax.process_index():
            continue
        yield tokenizer.encode(item)"""
LIGHTNING = """\
import lightning.pytorch as pl
import torch


class Model(pl.LightningModule):
    def __init__(self, path=None):
        super().__init__()
        self.path = path
        self.net = torch.nn.Linear(2, 2)
{setup}

def main(path, data):
    model = Model({given})
    trainer = pl.Trainer(devices=4, num_nodes=64)
{load}    trainer.fit(model, data)
"""
LOADED = """\
    checkpoint = torch.load(path, map_location="cpu")
    model.load_state_dict(checkpoint["state_dict"], strict=False)
"""
SETUP = """
    def setup(self, stage):
        state = torch.load(self.path, map_location="cpu")["state_dict"]
        missing, unexpected = self.load_state_dict(state, strict=False)
        if unexpected or set(missing) - {"net.bias"}:
            raise RuntimeError(f"the checkpoint does not fit: {missing} {unexpected}")
"""
ACKNOWLEDGED = """\
import torch
import torch.distributed as dist


def save(model, path):
{body}

def main(model):
    dist.init_process_group("gloo")
    save(model, "last.pt")


main(torch.nn.Linear(2, 2))
"""
PMAP = """\
import os
{before}
import jax


def train_step(state, batch, key):
    return state.apply(batch, rngs={{"dropout": key}})


def main(state, batch, seed):
    print(jax.process_index())
    step = jax.pmap(train_step, axis_name="i"{axes})
    key = jax.random.PRNGKey(seed)
    keys = jax.random.split({key}, jax.local_device_count())
    return step(state, batch, keys)
"""


def pmap(key: str = "jax.random.fold_in(key, jax.process_index())", before: str = "", axes: str = "") -> Files:
    return {"train.py": PMAP.format(key=key, before=before, axes=axes)}


# Name -> the project, the rules asked for beside the usual ones, what is found.
CASES: dict[str, tuple[Files, tuple[str, ...], list[str]]] = {
    "all processes save": (trainer(NAME + SAVE), (), ["AR101"]),
    "gate before the gather": (trainer(f"if jax.process_index() != 0:\n    return\n{NAME}{SAVE}"), (), ["AR202"]),
    "gate around the gather": (trainer(f"if jax.process_index() == 0:\n    {NAME}    {SAVE}"), (), ["AR201"]),
    "gather, then gate": (
        trainer(
            "params = self._params_for_host()\n"
            f"if jax.process_index() == 0:\n    {NAME}    save_checkpoint(params, path, step)"
        ),
        (),
        [],
    ),
    "the first shard as the whole": (
        {
            **trainer(NAME + f"if jax.process_index() == 0:\n    {SAVE}"),
            "train.py": trainer(NAME + f"if jax.process_index() == 0:\n    {SAVE}")["train.py"].replace(
                "multihost_utils.process_allgather(x, tiled=True)", "x.addressable_data(0)"
            ),
        },
        (),
        ["AR403"],
    ),
    "every process starts a run": ({"train.py": WANDB.format(gate="")}, (), ["AR103"]),
    "one process starts a run": ({"train.py": WANDB.format(gate="if jax.process_index() == 0: ")}, (), []),
    "i modulo N": ({"train.py": SHARDED.format(more="", loop=MODULO)}, ("AR3",), ["AR304"]),
    "split by the library": (
        {
            "train.py": SHARDED.format(
                more="from datasets.distributed import split_dataset_by_node\n",
                loop="""data = split_dataset_by_node(data, jax.process_index(), jax.process_count())
    for item in data:
        yield tokenizer.encode(item)""",
            )
        },
        ("AR3",),
        [],
    ),
    "simulated by a variable": (
        {"run_tpu.sh": "export JAX_PROCESS_COUNT=4\npython train_jax.py\n", "train_jax.py": "import jax\n"},
        (),
        ["AR604"],
    ),
    "loaded in part, unlooked at": (
        {"train.py": LIGHTNING.format(setup="", given="", load=LOADED)},
        ("AR5",),
        ["AR502"],
    ),
    "loaded in setup, looked at": (
        {"train.py": LIGHTNING.format(setup=SETUP, given="path", load="")},
        ("AR5",),
        [],
    ),
    "no barrier, all write": (
        {"train.py": ACKNOWLEDGED.format(body="    torch.save(model.state_dict(), path)\n")},
        (),
        ["AR101"],
    ),
    "rank 0 waits alone": (
        {
            "train.py": ACKNOWLEDGED.format(
                body="    if dist.get_rank() == 0:\n        dist.barrier()\n"
                "        torch.save(model.state_dict(), path)\n"
            )
        },
        (),
        ["AR201"],
    ),
    "all wait, rank 0 writes, all wait": (
        {
            "train.py": ACKNOWLEDGED.format(
                body="    dist.barrier()\n    if dist.get_rank() == 0:\n"
                "        torch.save(model.state_dict(), path)\n    dist.barrier()\n"
            )
        },
        (),
        [],
    ),
    "the variable that does not exist": (
        pmap(before="os.environ['XLA_RENDEZVOUS_WAIT_SECONDS'] = '120'"),
        (),
        ["AR604"],
    ),
    "the flag that does": (
        pmap(before="os.environ['XLA_FLAGS'] = '--xla_gpu_first_collective_call_terminate_timeout_seconds=120'"),
        (),
        [],
    ),
    "in_axes that change nothing": (pmap(axes=", in_axes=(0, 0, 0)"), (), []),
    "without in_axes": (pmap(), (), []),
    "the same keys on every host": (pmap(key="key"), (), ["AR701"]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_document_is_judged_as_the_cluster_would(case: str) -> None:
    """The bug and the wrong fixes are found, the right ones are clean."""
    files, select, expected = CASES[case]
    assert codes(files, *select) == expected
