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
