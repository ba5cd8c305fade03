"""What the first process of each node does, and what a program does that calls another: how sure that is a fault."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check

HEAD = """\
import os
import numpy as np
import torch.distributed as dist

dist.init_process_group('nccl')
if dist.get_rank() == 0:
    print('begin')
local_rank = int(os.environ['LOCAL_RANK'])
"""
SCRIPT = "torchrun --nnodes=2 --nproc_per_node=8 train.py\n"
WORKS = {
    "makes what it lacks": (
        """
        if local_rank == 0 and not os.path.exists('data'):
            os.makedirs('data')
            for i in range(40):
                np.save(f'data/{i}.npy', [i])
        """,
        "low",
    ),
    "makes it anew": (
        """
        if local_rank == 0:
            for i in range(40):
                np.save(f'data/{i}.npy', [i])
        """,
        "high",
    ),
    "lacks one file": (
        """
        if local_rank == 0 and not os.path.exists('index.npy'):
            np.save('index.npy', [1])
        """,
        "high",
    ),
    "removes what may be gone": ("if local_rank == 0:\n    os.system('rm -rf waits')", "low"),
    "removes without a complaint": ("if local_rank == 0:\n    shutil.rmtree('waits', ignore_errors=True)", "low"),
    "removes what is there": ("if local_rank == 0:\n    os.system('rm waits')", "high"),
    "links, and hears nothing": ("if local_rank == 0:\n    os.system('ln -s a b >/dev/null 2>&1')", "low"),
    "links": ("if local_rank == 0:\n    os.system('ln -s a b')", "high"),
}


@pytest.mark.parametrize("what", WORKS)
def test_what_a_node_makes_for_itself_or_does_in_vain_is_of_low_confidence(what: str) -> None:
    body, confidence = WORKS[what]
    files = {"train.py": (HEAD + textwrap.dedent(body)).encode(), "run.sh": SCRIPT.encode()}
    found = check(files, Settings(select=("AR105",))).findings
    assert [one.confidence for one in found] == [confidence]


CAPTIONS = """\
def main(path):
    with open(path, 'w') as file:
        file.write('a')

if __name__ == '__main__':
    main('captions.txt')
"""
ALL = """\
import torch.distributed as dist
from {0} import main as write

def main():
    write('captions.txt')
    dist.init_process_group('nccl')

if __name__ == '__main__':
    main()
"""


@pytest.mark.parametrize(("name", "confidence"), [("caption_videos", "low"), ("writing", "high")])
def test_a_program_that_calls_one_that_prepares_something_is_mostly_one_process(name: str, confidence: str) -> None:
    """Unless a script starts several of it."""
    files = {f"{name}.py": CAPTIONS.encode(), "pipeline.py": ALL.format(name).encode()}
    found = check(files, Settings(select=("AR102",))).findings
    assert [one.confidence for one in found] == [confidence]
    launched = {**files, "run.sh": b"torchrun --nproc_per_node=8 pipeline.py\n"}
    found = check(launched, Settings(select=("AR102",))).findings
    assert [one.confidence for one in found] == ["high"]


WRITES = """\
import torch.distributed as dist

def {0}(path):
    with open(path, 'w') as file:
        file.write('a')

def main():
    dist.init_process_group('nccl')
    {0}('a.txt')

if __name__ == '__main__':
    main()
"""
USES = {
    "test": "low",
    "inference_ensemble": "low",
    "save_predictions": "low",
    "test_epoch_end": "high",
    "report": "high",
}


@pytest.mark.parametrize("name", USES)
def test_who_tests_a_model_or_predicts_with_it_is_mostly_one_process(name: str) -> None:
    found = check({"train.py": WRITES.format(name).encode()}, Settings(select=("AR102",))).findings
    assert [one.confidence for one in found] == [USES[name]]


PUSHES = """\
import lightning.pytorch as pl

class Model(pl.LightningModule):
    def {0}(self, repo):
        self.upload_folder(repo)
        with open('card.md', 'w') as file:
            file.write(repo)
"""


def test_what_nobody_here_calls_and_pushes_to_the_hub_is_called_by_hand() -> None:
    codes = {
        name: [one.code for one in check({"model.py": PUSHES.format(name).encode()}, Settings()).findings]
        for name in ("push_to_hub", "on_train_end")
    }
    assert codes == {"push_to_hub": [], "on_train_end": ["AR102"]}


ALONE = """\
import torch.multiprocessing as mp
from work import run

def main(n):
    if n == 1:
        run({0})
    else:
        mp.spawn(run, args=(n,), nprocs=n)

if __name__ == '__main__':
    main(4)
"""
WORK = """\
import torch.distributed as dist

def run(rank, size):
    if size > 1:
        dist.init_process_group('nccl')
    with open(f'sample_{rank}.txt', 'w') as file:
        file.write('a')
"""


@pytest.mark.parametrize("given", ["rank=0, size=1", "0, 1"])
def test_who_is_told_his_rank_by_keyword_is_alone_too(given: str) -> None:
    files = {"work.py": WORK.encode(), "train.py": ALONE.format(given).encode()}
    assert [one.place for one in check(files, Settings(select=("AR102",))).findings] == []
