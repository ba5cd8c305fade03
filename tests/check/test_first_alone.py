"""What a program does before Lightning's Trainer starts the other processes of the node: they find it done."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

BEFORE = """\
import os
import lightning as L
import torch.distributed as dist
from torchvision.datasets import MNIST

class Data(L.LightningDataModule):
    def __init__(self):
        super().__init__()
        self.data = MNIST("data", download=True)

if __name__ == "__main__":
    if not os.path.exists("out"):
        os.makedirs("out")
    L.Trainer(devices=8).fit(None, Data())
    dist.barrier()
"""
MODEL = """\
import torch

class Encoder(torch.nn.Module):
    def __init__(self):
        self.inner = torch.hub.load("a/b", "c")
"""
LATER = """\
import shutil
import lightning as L
import torch.distributed as dist
from torchvision.datasets import MNIST

{}
L.Trainer(devices=8).fit(None)
{}
dist.barrier()
"""
FETCH = "MNIST('data', download=True)"
CLI = """\
from lightning.pytorch.cli import LightningCLI
import torch.distributed as dist

LightningCLI()
dist.barrier()
"""


WRITING = """import os
import shutil
import lightning as L
import torch
import torch.distributed as dist

if dist.get_rank() == 0:
    shutil.rmtree("out")
os.makedirs("out", exist_ok=True)
{}:
    torch.save({{}}, "vocabulary.pt")
    open("vocabulary.json", "w")
L.Trainer(devices=8).fit(None)
"""
RULES = ("AR106", "AR108")


def found(files: dict[str, str], codes: tuple[str, ...] = RULES, **more: str) -> list[tuple[str, str]]:
    sources = {path: text.encode() for path, text in files.items()}
    findings = check(sources, Settings(select=codes, **more)).findings  # type: ignore[arg-type]
    return [(one.code, one.confidence) for one in findings]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, "low"),
        ({"README.md": "python train.py\n"}, "low"),
        ({"README.md": "torchrun --nproc-per-node 8 train.py\n"}, "high"),
        ({"run.sh": "srun python train.py\n"}, "high"),
        ({"run.sh": "#SBATCH --gpus=8\npython train.py\n"}, "low"),
        ({"args.py": "parser.add_argument('--num_nodes')\n"}, "high"),
        ({"other.py": "import torch.distributed as dist\ndist.init_process_group('nccl')\n"}, "high"),
    ],
)
def test_it_is_done_once_a_node_where_the_trainer_starts_the_others(files: dict[str, str], expected: str) -> None:
    """A launcher starts all of them at once, and so do processes that join by themselves; nodes begin together."""
    assert found({"train.py": BEFORE, **files}) == [("AR106", expected), ("AR108", expected)]


def test_what_a_configuration_names_is_made_before_the_trainer_fits() -> None:
    """Modules are; a data set may be made by a hook in every process."""
    assert found({"train.py": CLI, "model.py": MODEL}) == [("AR106", "low")]
    assert found({"train.py": CLI, "model.py": MODEL.replace("torch.nn.Module", "torch.utils.data.Dataset")}) == [
        ("AR106", "high")
    ]


def test_what_does_not_look_whether_it_is_done_is_done_by_all() -> None:
    """The others unpack the archive once more, at the same time."""
    assert found({"train.py": LATER.format("shutil.unpack_archive('a.zip', 'data')", "")}) == [("AR106", "high")]


@pytest.mark.parametrize(("before", "after", "expected"), [(FETCH, "", "low"), ("", FETCH, "high")])
def test_what_comes_later_is_done_by_all(before: str, after: str, expected: str) -> None:
    text = LATER.format(before, after)
    assert found({"train.py": text}) == [("AR106", expected)]
    assert found({"train.py": text}, assume="multi-host") == [("AR106", "high")]


def test_a_hook_runs_in_all_processes() -> None:
    hook = BEFORE.replace("def __init__(self)", "def setup(self, stage)").replace("super().__init__()", "pass")
    assert found({"train.py": hook}) == [("AR106", "high"), ("AR108", "low")]


@pytest.mark.parametrize(
    ("asks", "expected"), [("if not os.path.exists('vocabulary.json')", "low"), ("if os.environ.get('NEW')", "high")]
)
def test_a_file_is_written_by_who_finds_none(asks: str, expected: str) -> None:
    """Who writes without looking does so once more, at the same time as others; a folder is gone before they begin."""
    codes = ("AR101", "AR102")
    one = {"train.py": WRITING.format(asks)}
    assert found(one, codes) == [("AR101", expected), ("AR102", expected)]
    torchrun = {**one, "README.md": "torchrun train.py\n"}
    assert found(torchrun, codes) == [("AR101", "high"), ("AR102", "high")]


@pytest.mark.parametrize(("asks", "expected"), [("if not os.listdir('runs')", "low"), ("if True", "high")])
def test_a_folder_after_the_clock_is_found_by_who_comes_later(asks: str, expected: str) -> None:
    """Who makes one without looking makes another."""
    text = f"""import datetime
import os
import lightning as L

{asks}:
    folder = f"runs/{{datetime.datetime.now()}}"
    os.makedirs(folder, exist_ok=True)
L.Trainer(devices=8).fit(None)
"""
    assert found({"train.py": text}, ("AR107",)) == [("AR107", expected)]


LEAVES = """\
import sys
from lightning.pytorch import Trainer
from lightning.pytorch.utilities import rank_zero_only

def prepare(stage, model):
    {}

def main(stage, model):
    prepare(stage, model)
    trainer = Trainer(devices=2)
    trainer.fit(model)

main(1, None)
"""


@pytest.mark.parametrize(
    ("leaves", "sure"),
    [
        ("if rank_zero_only.rank == 0 and stage == 1: model.save('init.pt'); sys.exit(0)", ["low"]),
        ("if rank_zero_only.rank != 0: sys.exit(0)", ["high"]),
    ],
)
def test_who_leaves_before_it_fits_is_alone_if_it_is_the_first(leaves: str, sure: list[str]) -> None:
    """The others leave where the first has started them, and waits for them."""
    findings = check({"a.py": LEAVES.format(leaves).encode()}, Settings(select=("AR202",), confidence="low")).findings
    assert [found.confidence for found in findings] == sure
    outside = {"run.sh": b"torchrun --nproc_per_node 8 a.py\n", "a.py": LEAVES.format(leaves).encode()}
    findings = check(outside, Settings(select=("AR202",), confidence="low")).findings
    assert [found.confidence for found in findings] == ["high"]


LOG = """\
import os

if not os.path.exists("logs"):
    os.makedirs("logs")
"""
SPAWNING = """\
import torch.distributed as dist
import torch.multiprocessing as mp
import log


def work(rank, size):
    dist.init_process_group("gloo", rank=rank, world_size=size)


def main(size):
    mp.spawn(work, args=(size,), nprocs=size)


if __name__ == "__main__":
    main(8)
"""


@pytest.mark.parametrize(
    ("train", "script", "expected"),
    [
        (SPAWNING, "python train.py\n", "low"),
        (SPAWNING, "torchrun --nproc_per_node 8 train.py\n", "high"),
        (SPAWNING.replace("mp.spawn(work, args=(size,), nprocs=size)", "work(rank(), size)"), "", "high"),
    ],
)
def test_what_is_imported_again_by_those_that_are_spawned_was_done_by_who_spawns(
    train: str, script: str, expected: str
) -> None:
    assert found({"train.py": train, "log.py": LOG, "run.sh": script}) == [("AR108", expected)]
