"""AR703: objects that one rank alone tells how the training goes, and that all then ask."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

STOPPER = """\
class Stopper:
    def __init__(self):
        self.bad, self.stop, self.limit = 0, False, 5
    def __call__(self, loss):
        self.bad += 1
        self.stop = self.bad > self.limit
    def agreed(self):
        return bool(all_reduce_max(self.stop))
"""
SHELL = """\
import torch.distributed as dist
from stopper import Stopper

class Trainer:
    def __init__(self, rank):
        self.rank, self.over, self.event = rank, False, None
        self.stopper = Stopper()
    def fit(self, losses):
        stopper, state = Stopper(), {{"stop": False}}
        for loss in losses:
            dist.all_reduce(loss)
{}
if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer(dist.get_rank()).fit([])
"""


def found(body: str) -> list[int]:
    """Return the lines of AR703 in a loop of ``body``, counted from its first one."""
    lines = "\n".join(f"            {line}" for line in body.splitlines())
    files = {"train.py": SHELL.format(lines).encode(), "stopper.py": STOPPER.encode()}
    return [f.place.line - 11 for f in check(files, Settings(select=("AR703",))).findings if f.confidence == "high"]


@pytest.mark.parametrize(
    ("body", "at"),
    [
        ("if self.rank == 0:\n    stopper(loss)\nif stopper.stop:\n    break", 3),
        ("if self.rank == 0:\n    self.stopper(loss)\nif self.stopper.stop:\n    break", 3),
        ("if self.rank == 0:\n    state['stop'] = True\nif state['stop']:\n    break", 3),
        ("if self.rank == 0 and loss > 3:\n    self.over = True\nif self.over:\n    return", 3),
        ("while not stopper.stop:\n    dist.barrier()\n    if self.rank == 0:\n        stopper(loss)", 1),
    ],
)
def test_what_one_rank_is_told_ends_the_loop_of_all(body: str, at: int) -> None:
    assert found(body) == [at]


@pytest.mark.parametrize(
    "body",
    [
        "stopper(loss)\nif stopper.stop:\n    break",  # all are told
        "if self.rank == 0:\n    stopper(loss)\n    if stopper.stop:\n        print(loss)",  # one alone asks
        "if self.rank == 0:\n    stopper(loss)\nif stopper.limit > 9:\n    break",  # nobody changes it
        "if self.rank == 0:\n    stopper(loss)\nif stopper.agreed():\n    break",  # it asks the others
        "if self.rank == 0:\n    stopper(loss)\nstopper.stop = agree(stopper.stop)\nif stopper.stop:\n    break",
        "if self.rank == 0:\n    stopper(loss)\nbox = [stopper]\nshare(box)\nif stopper.stop:\n    break",
        "if self.rank == 0:\n    state['stop'] = True\nstate.update(agreed(state))\nif state['stop']:\n    break",
        "if self.rank == 0:\n    self.event = Event()\nif self.event.wait():\n    break",  # others have none
        "for part in loss:\n    if self.rank == 0:\n        stopper(part)\n    if stopper.stop:\n        break",
    ],
)
def test_what_all_know_alike_ends_it_for_all(body: str) -> None:
    assert found(body) == []


def test_a_schedule_and_a_weight_of_the_loss_change_on_one_rank() -> None:
    program = """\
import torch, torch.distributed as dist
from weights import Weight
def main(rank, epochs, model, optimizer):
    weight, plan = Weight(), torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    plan_of_all = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    for epoch in range(epochs):
        loss = model(epoch) * weight.now
        loss.backward()
        if rank == 0:
            weight.update(loss)
            plan.step(loss)
            print(plan_of_all.get_last_lr())
        plan_of_all.step(loss)
if __name__ == "__main__":
    main(dist.get_rank(), 9, Model(), optim)
"""
    weights = """\
class Weight:
    def update(self, loss):
        self._weigh(loss)
    def _weigh(self, loss):
        self.now = 0.9 * self.now
"""
    files = {"train.py": program.encode(), "weights.py": weights.encode()}
    assert [f.place.line for f in check(files, Settings(select=("AR703",))).findings] == [7, 11]


def test_an_attribute_that_some_ranks_set_says_how_often_all_go_round() -> None:
    resumed = """\
import torch, torch.distributed as dist
class Resumed:
    def __init__(self, path):
        self.start = 0
        if path and dist.get_rank() == 0:
            self.start = torch.load(path)["epoch"]
"""
    program = """\
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from resumed import Resumed
dist.init_process_group("nccl")
resumed = Resumed("last.pt")
model = DistributedDataParallel(torch.nn.Linear(1, 1))
for epoch in range(resumed.start, 9):
    model(torch.zeros(1)).backward()
"""
    files = {"train.py": program.encode(), "resumed.py": resumed.encode()}
    assert [f.place.line for f in check(files, Settings(select=("AR703",))).findings] == [7]
    resumed += "        self.start = agreed(self.start)\n"
    files = {"train.py": program.encode(), "resumed.py": resumed.encode()}
    assert not check(files, Settings(select=("AR703",))).findings
