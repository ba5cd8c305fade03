"""Programs, and parts of them, that one process runs: they are silent, and the same write in several is found."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from allranks.check.engine import Settings, check

WRITE = "open('metrics.txt', 'w')"
SPAWNED = f"""import torch.distributed as dist
import torch.multiprocessing as mp

def run(rank, size):
    dist.init_process_group('nccl')
    {{}}
{WRITE}
mp.spawn(run, args=(2,), nprocs=2)
"""
LOADER = "from torch.utils.data import DistributedSampler\nimport torch.distributed as dist\n"
ASKED = f"{LOADER}if dist.is_initialized():\n    sampler = DistributedSampler([])\n{WRITE}\n"
TOLD = f"""import torch.distributed as dist

def run(rank, size):
    if size > 1:
        dist.init_process_group('nccl')
    {WRITE}

"""
JOINED = f"import torch.distributed as dist\n\ndist.init_process_group('nccl')\n{WRITE}\n"
TRAIN = "from tools import {0}\nfrom evaluate import evaluate\n\ndef rank():\n    return {0}()\n"
EVALUATE = f"""from train import rank
import torch.distributed as dist

def evaluate():
    dist.barrier()
    if rank() {{}} 0:
        {WRITE}

if __name__ == '__main__':
    evaluate()
"""

# what is silent, and what is found
PAIRS: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "a tool that only verifies": ({"tools/verify_checkpoint.py": JOINED}, {"tools/tune_checkpoint.py": JOINED}),
    "a tool that brings data into another form": ({"to_tfrecords.py": JOINED}, {"with_tfrecords.py": JOINED}),
    "a tool that turns one thing into another": (
        {"tools/convert_weights.py": JOINED},
        {"tools/finetune_weights.py": JOINED},
    ),
    "who starts the others": (
        {"train.py": SPAWNED.format("pass")},
        {"train.py": SPAWNED.format(WRITE)},
    ),
    "who is told as a constant that he is the first": (
        {"train.py": f"{TOLD}run(0, 1)\n"},
        {"train.py": f"import os\n{TOLD}run(int(os.environ['RANK']), 2)\n"},
    ),
    "who asks whether there are others": (
        {"train.py": ASKED},
        {"train.py": f"{ASKED}dist.init_process_group('nccl')\n"},
    ),
    "a guard from a module that imports this one": (
        {
            "evaluate.py": EVALUATE.format("=="),
            "tools.py": "from torch.distributed import get_rank\n",
            "train.py": TRAIN.format("get_rank"),
        },
        {
            "evaluate.py": EVALUATE.format(">="),
            "tools.py": "from torch.distributed import get_rank\n",
            "train.py": TRAIN.format("get_rank"),
        },
    ),
}


@pytest.mark.parametrize("case", PAIRS)
def test_what_one_process_does_is_silent(case: str) -> None:
    """The write of one process is none of every rank's; that of several is."""
    for files, expected in zip(PAIRS[case], ([], ["AR102"]), strict=True):
        outcome = check({path: text.encode() for path, text in files.items()}, Settings(select=("AR102",)))
        assert [finding.code for finding in outcome.findings] == expected


_MODEL = """\
import torch
import torch.distributed as dist

class Experiment:
    def __init__(self, conf):
        if conf.use_ddp:
            dist.init_process_group("nccl")
        self.net = torch.nn.Linear(2, 2)
"""
_PROGRAM = "\nif __name__ == '__main__':\n    Experiment(make_conf())\n"
_USING = """\
from train import Experiment

def main(conf):
    experiment = Experiment(conf)
    open("results.csv", "w")

if __name__ == "__main__":
    main(make_conf())
"""


@pytest.mark.parametrize(
    ("path", "train", "found"),
    [
        ("inference.py", _MODEL + _PROGRAM, []),
        ("run_inference.py", _MODEL + _PROGRAM, []),
        ("finetune.py", _MODEL + _PROGRAM, ["AR102"]),
        ("inference.py", _MODEL, ["AR102"]),
    ],
)
def test_a_program_that_uses_a_model_borrows_its_class(path: str, train: str, found: list[str]) -> None:
    """The class joins processes for the program that trains; what no program trains may be used by several."""
    sources = {path: _USING.encode(), "train.py": train.encode()}
    assert [one.code for one in check(sources, Settings(select=("AR102",))).findings] == found
    own = _USING.replace("    experiment", "    dist.barrier()\n    experiment").replace(
        "from t", "import torch.distributed as dist\nfrom t"
    )
    sources[path] = own.encode()
    assert [one.code for one in check(sources, Settings(select=("AR102",))).findings] == ["AR102"]
