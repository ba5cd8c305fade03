"""Whole small repositories, right as they stand; one bug is planted in one of their files, and that one is found."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

Files = dict[str, str]

TORCH: Files = {
    "train.py": """\
import argparse
import os

import torch
from torch.nn.parallel import DistributedDataParallel

from lib import checkpoint, logs
from lib.data import loader
from lib.ranks import close, is_main, rank, start, world


def run(args):
    device = start()
    model = DistributedDataParallel(torch.nn.Linear(8, 1).to(device), device_ids=[device])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = checkpoint.restore(model, optimizer, args.out)
    batches, sampler = loader(args.data, args.seed, rank(), world())
    log = logs.Log(args.out) if is_main() else None
    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)
        for x, y in batches:
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            optimizer.step()
        score = logs.mean(loss.detach())
        if log is not None:
            log.write(epoch, float(score))
        checkpoint.save(model, optimizer, args.out, epoch)
    close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("data", "out", "epochs", "seed"):
        parser.add_argument(f"--{name}")
    run(parser.parse_args())
""",
    "lib/__init__.py": "",
    "lib/ranks.py": """\
import os

import torch
import torch.distributed as dist


def start():
    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    return device


def rank():
    return dist.get_rank()


def world():
    return dist.get_world_size()


def is_main():
    return rank() == 0


def close():
    dist.barrier()
    dist.destroy_process_group()
""",
    "lib/checkpoint.py": """\
import os

import torch
import torch.distributed as dist

from lib.ranks import is_main


def save(model, optimizer, out, epoch):
    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    if is_main():
        write(state, os.path.join(out, "last.pt"))
    dist.barrier()


def write(state, path):
    torch.save(state, path + ".tmp")
    os.replace(path + ".tmp", path)


def restore(model, optimizer, out):
    path = os.path.join(out, "last.pt")
    found = [os.path.exists(path)]
    dist.broadcast_object_list(found, src=0)
    if not found[0]:
        return 0
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"] + 1
""",
    "lib/data.py": """\
import os

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Rows(Dataset):
    def __init__(self, folder):
        self.files = sorted(os.listdir(folder))
        self.folder = folder

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return torch.load(os.path.join(self.folder, self.files[index]), map_location="cpu")


def loader(folder, seed, rank, world):
    rows = Rows(folder)
    sampler = DistributedSampler(rows, world, rank, seed=int(seed), drop_last=True)
    return DataLoader(rows, batch_size=8, sampler=sampler, drop_last=True), sampler
""",
    "lib/logs.py": """\
import os

import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter


class Log:
    def __init__(self, out):
        self.writer = SummaryWriter(os.path.join(out, "tb"))
        self.path = os.path.join(out, "log.txt")

    def write(self, epoch, score):
        self.writer.add_scalar("score", score, epoch)
        with open(self.path, "a") as file:
            file.write(f"{epoch} {score}\\n")


def mean(value):
    dist.all_reduce(value)
    return value / dist.get_world_size()
""",
    "run.sbatch": """\
#!/bin/bash
#SBATCH --nodes=4
export NCCL_DEBUG=WARN
srun torchrun --nnodes=4 train.py
""",
}
JAX: Files = {
    "main.py": """\
import os

import jax
from jax.sharding import NamedSharding, PartitionSpec as P

from job import data, saving
from job.step import train_step


def main(config, seed):
    jax.distributed.initialize()
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    key = jax.random.key(seed)
    state = saving.restore(config.folder, key)
    step = jax.jit(train_step)
    for number, batch in enumerate(data.batches(config, NamedSharding(mesh, P("data")))):
        state = step(state, batch, jax.random.fold_in(key, number))
        if number % 100 == 0:
            saving.save(config.folder, state, number)


if __name__ == "__main__":
    main(None, 0)
""",
    "job/__init__.py": "",
    "job/step.py": "def train_step(state, batch, key):\n    return state\n",
    "job/data.py": """\
import glob

import jax
import numpy as np


def files(folder):
    names = sorted(glob.glob(f"{folder}/*.npy"))
    each = len(names) // jax.process_count()
    return names[: each * jax.process_count()][jax.process_index() :: jax.process_count()]


def batches(config, sharding):
    for name in files(config.data):
        yield jax.make_array_from_process_local_data(sharding, np.load(name))
""",
    "job/saving.py": """\
import os
import pickle

import jax
from jax.experimental import multihost_utils


def save(folder, state, number):
    whole = multihost_utils.process_allgather(state, tiled=True)
    if jax.process_index() == 0:
        path = os.path.join(folder, "state.pkl")
        with open(path + ".tmp", "wb") as file:
            pickle.dump((whole, number), file)
        os.replace(path + ".tmp", path)
    multihost_utils.sync_global_devices("saved")


def restore(folder, key):
    return key
""",
}
EACH = """\
each = len(names) // jax.process_count()
    return names[: each * jax.process_count()][jax.process_index() :: jax.process_count()]"""
# Name -> the repository, the file, what stands there, what is put there instead, the rules asked for too, code and path
# of what is found.
PLANTED: dict[str, tuple[Files, str, str, str, tuple[str, ...], str]] = {
    "save without a gate": (
        TORCH,
        "lib/checkpoint.py",
        "    if is_main():\n        write(",
        "    if epoch % 2 == 0:\n        write(",
        (),
        "AR101 lib/checkpoint.py, AR109 lib/checkpoint.py",
    ),
    "barrier inside the gate": (
        TORCH,
        "lib/checkpoint.py",
        "    dist.barrier()\n\n\ndef write",
        "        dist.barrier()\n\n\ndef write",
        (),
        "AR201 lib/checkpoint.py",
    ),
    "early return of the others": (
        TORCH,
        "lib/checkpoint.py",
        "    if is_main():\n        write(",
        "    if not is_main():\n        return\n    if True:\n        write(",
        (),
        "AR202 lib/checkpoint.py",
    ),
    "reduced where only one logs": (
        TORCH,
        "train.py",
        "        score = logs.mean(loss.detach())\n        if log is not None:\n",
        "        if log is not None:\n            score = logs.mean(loss.detach())\n",
        (),
        "AR201 train.py",
    ),
    "each looks for the checkpoint itself": (
        TORCH,
        "lib/checkpoint.py",
        "    dist.broadcast_object_list(found, src=0)\n",
        "",
        ("AR5",),
        "AR503 lib/checkpoint.py",
    ),
    "loaded in part": (
        TORCH,
        "lib/checkpoint.py",
        'load_state_dict(state["model"])',
        'load_state_dict(state["model"], strict=False)',
        ("AR502",),
        "AR502 lib/checkpoint.py",
    ),
    "epoch never set": (TORCH, "train.py", "        sampler.set_epoch(epoch)\n", "", (), "AR302 lib/data.py"),
    "rows in no order": (
        TORCH,
        "lib/data.py",
        "sorted(os.listdir(folder))",
        "os.listdir(folder)",
        ("AR307",),
        "AR307 lib/data.py",
    ),
    "a seed of its own": (
        TORCH,
        "lib/data.py",
        "seed=int(seed)",
        "seed=os.getpid()",
        ("AR308",),
        "AR308 lib/data.py",
    ),
    "every rank logs": (
        TORCH,
        "train.py",
        "logs.Log(args.out) if is_main() else None",
        "logs.Log(args.out)",
        (),
        "AR102 lib/logs.py, AR103 lib/logs.py",
    ),
    "gate on the local rank": (
        TORCH,
        "lib/ranks.py",
        "    return rank() == 0",
        '    return int(os.environ["LOCAL_RANK"]) == 0',
        ("AR105",),
        "AR105 lib/checkpoint.py, AR105 lib/logs.py",
    ),
    "no device bound": (
        TORCH,
        "lib/ranks.py",
        '    torch.cuda.set_device(device)\n    dist.init_process_group("nccl")\n',
        '    dist.init_process_group("nccl")\n    dist.barrier()\n    torch.cuda.set_device(device)\n',
        (),
        "AR605 lib/ranks.py",
    ),
    "a folder made at import": (
        TORCH,
        "lib/logs.py",
        "\n\nclass Log:",
        '\nif not os.path.isdir("cache"):\n    os.mkdir("cache")\n\n\nclass Log:',
        (),
        "AR108 lib/logs.py",
    ),
    "a variable that nothing reads": (
        TORCH,
        "run.sbatch",
        "NCCL_DEBUG=WARN",
        "NCCL_TIMEOUT=7200",
        (),
        "AR604 run.sbatch",
    ),
    "every process pickles": (
        JAX,
        "job/saving.py",
        "if jax.process_index() == 0:",
        "if number:",
        (),
        "AR101 job/saving.py, AR109 job/saving.py",
    ),
    "gather on one process": (
        JAX,
        "job/saving.py",
        "    whole = multihost_utils.process_allgather(state, tiled=True)\n    if jax.process_index() == 0:\n",
        "    if jax.process_index() == 0:\n        whole = multihost_utils.process_allgather(state, tiled=True)\n",
        (),
        "AR201 job/saving.py",
    ),
    "gathered without tiled": (
        JAX,
        "job/saving.py",
        "process_allgather(state, tiled=True)",
        "process_allgather(state)",
        (),
        "AR610 job/saving.py",
    ),
    "join after the devices": (
        JAX,
        "main.py",
        "    jax.distributed.initialize()\n",
        "    print(jax.devices())\n    jax.distributed.initialize()\n",
        (),
        "AR602 main.py",
    ),
    "files in no order": (
        JAX,
        "job/data.py",
        'sorted(glob.glob(f"{folder}/*.npy"))',
        'glob.glob(f"{folder}/*.npy")',
        ("AR307",),
        "AR307 job/data.py",
    ),
    "a key of its own": (JAX, "main.py", "main(None, 0)", "main(None, os.getpid())", (), "AR702 main.py"),
}


def found(files: Files, select: tuple[str, ...] = ()) -> str:
    """Return code and path of what is more than information, each once."""
    outcome = check({path: text.encode() for path, text in files.items()}, Settings(extend_select=select))
    return ", ".join(sorted({f"{f.code} {f.place.path}" for f in outcome.findings if f.severity != "info"}))


@pytest.mark.parametrize("files", [TORCH, JAX], ids=["torch", "jax"])
def test_the_repositories_are_clean(files: Files) -> None:
    """Under every rule that runs by default, and those that the plants ask for."""
    asked = {code for _, _, _, _, select, _ in PLANTED.values() for code in select}
    assert found(files, tuple(asked)) == ""


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_bug_is_found_where_it_is(plant: str) -> None:
    """In the file where it takes effect, and nothing else: a second code is about a second effect of the same bug."""
    files, path, before, after, select, expected = PLANTED[plant]
    assert files[path].count(before) == 1
    assert found({**files, path: files[path].replace(before, after)}, select) == expected
