"""What findings say, and what they underline."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check
from allranks.findings import Finding

HEAD = """
import os
import torch
import torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
"""


def found(text: str, code: str) -> list[Finding]:
    """Return what is found under a code in a program behind `HEAD`; its first line has the number 1."""
    findings = check({"train.py": (HEAD + textwrap.dedent(text)).encode()}, Settings()).findings
    return [one for one in findings if one.code == code]


def line(one: Finding) -> int:
    """Return the line of a finding in a program behind `HEAD`."""
    return one.place.line - HEAD.count("\n")


def notes(one: Finding) -> list[str]:
    """Return the notes of a finding, each with its line."""
    return [f"{note.place.line - HEAD.count(chr(10))}: {note.text}" if note.place else note.text for note in one.notes]


def test_a_divergence_shows_its_condition_its_collective_and_both_sides() -> None:
    (one,) = found("if rank == 0:\n    dist.barrier()\n", "AR201")
    assert one.message == "torch.distributed.barrier is not reached by every rank: it depends on rank == 0"
    assert notes(one) == [
        "1: the ranks diverge here",
        "2: torch.distributed.barrier is called here",
        "rank 0: barrier",
        "the other ranks: no collective",
    ]


@pytest.mark.parametrize("text", ["dist.barrier() if rank == 0 else None\n", "rank == 0 and dist.barrier()\n"])
def test_a_condition_inside_an_expression_is_named(text: str) -> None:
    (one,) = found(text, "AR201")
    assert (line(one), one.message.partition("depends on ")[2]) == (1, "rank == 0")


DECORATED = """\
import lightning as L
from lightning.pytorch.utilities import rank_zero_only
class Model(L.LightningModule):
    def on_fit_start(self):
        self.helper()
    @rank_zero_only
    def helper(self):
        self.trainer.strategy.barrier()
"""


def test_a_decorator_is_named_as_the_guard() -> None:
    """The finding is at the call of the function that it guards."""
    (one,) = found(DECORATED, "AR201")
    assert (line(one), one.message.partition("depends on ")[2]) == (5, "@rank_zero_only")
    assert "8: Strategy.barrier is called here" in notes(one)


def test_a_rank_as_the_number_of_a_gpu_is_said_to_fail_on_the_second_node() -> None:
    """It is not said that all processes use GPU 0."""
    (one,) = found("local_rank = 0\ntorch.cuda.set_device(rank)\n", "AR605")
    assert line(one) == 2
    assert "on the second there is no GPU of that number" in one.cluster
    assert "GPU 0" not in f"{one.cluster} {one.advice}"


BY_CLOCK = """\
import time
start = time.time()
for epoch in range(100):
    if time.time() - start > 3600:
        break
    told = [epoch]
    dist.broadcast_object_list(told, src=0)
"""


def test_a_loop_that_is_left_is_said_to_leave_the_others_waiting() -> None:
    """Of a backward pass nothing is said where there is none."""
    (one,) = found(BY_CLOCK, "AR209")
    assert "time.time() - start > 3600" in one.message
    assert "broadcast_object_list" in one.message
    assert "backward" not in one.cluster


FOLDERS = """\
os.makedirs('out')
if not os.path.exists('logs'):
    os.makedirs('logs')
"""


def test_a_folder_that_is_made_without_a_test_is_not_said_to_be_tested() -> None:
    bare, tested = found(FOLDERS, "AR108")
    assert "tested" not in bare.cluster
    assert "tested" in tested.cluster
    assert "FileExistsError" in bare.cluster


def test_a_loss_of_this_rank_is_named() -> None:
    """Where a process leaves, and what the others wait in."""
    text = "def step(loss):\n    if torch.isnan(loss.mean()):\n        return\n    dist.all_reduce(loss)\n"
    text += "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))\nstep(model(1))\n"
    (one,) = [*found(text, "AR203"), *found(text, "AR209")]
    assert "torch.isnan(loss.mean())" in one.message
    assert "torch.distributed.all_reduce" in one.message


PICKLED = """\
import pickle
with open("model.pkl", "wb") as f:
    pickle.dump([], f)
"""


def test_a_checkpoint_is_called_by_its_file_and_not_by_its_handle() -> None:
    (one,) = found(PICKLED, "AR101")
    assert (line(one), one.message) == (3, "every rank writes the checkpoint 'model.pkl'")


def test_a_tracker_and_a_download_are_named_by_what_is_called() -> None:
    (one,) = found("from torch.utils.tensorboard import SummaryWriter\nSummaryWriter('runs')\n", "AR103")
    assert "SummaryWriter" in one.message
    (one,) = found("from torchvision.datasets import MNIST\nMNIST('data', download=True)\n", "AR106")
    assert "MNIST" in one.message


def test_a_link_is_made_and_not_deleted() -> None:
    (one,) = found("os.symlink('step-1', 'latest')\n", "AR109")
    assert one.message == "every rank makes the link 'latest'"


def test_a_group_is_made_by_all() -> None:
    """Nothing is done with its result that a guard could stand around."""
    (one,) = found("if rank in (0, 1):\n    group = dist.new_group([0, 1])\n", "AR201")
    assert one.advice == "Call new_group on every process for each group, also for groups without this process."
