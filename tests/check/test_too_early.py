"""Guards that ask whether the processes are joined, before they are: each process takes itself for rank 0."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

HELPERS = """\
import torch.distributed as dist

def ready():
    if not dist.is_available():
        return False
    if not dist.is_initialized():
        return False
    return True

def get_rank():
    if not ready():
        return 0
    return dist.get_rank()

def rank_or_zero():
    return dist.get_rank() if dist.is_initialized() else 0

def is_main():
    return get_rank() == 0

def is_first():
    if dist.is_initialized():
        return dist.get_rank() == 0
    return True
"""
HEAD = "import os\nimport wandb\nimport torch.distributed as dist\nfrom accelerate import Accelerator\nimport helpers\n"
GUARDS = (
    "not dist.is_initialized() or dist.get_rank() == 0",
    "helpers.is_main()",
    "helpers.get_rank() == 0",
    "helpers.rank_or_zero() == 0",
    "helpers.is_first()",
)
JOINS = ("dist.init_process_group('nccl')", "accelerator = Accelerator()", "start()")
START = "def start():\n    accelerator = Accelerator()\n    return accelerator\n\n"


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("joins", JOINS)
def test_a_guard_before_the_processes_are_joined_lets_all_pass(guard: str, joins: str) -> None:
    """Behind the call that joins them, the same guard is right."""
    begins = f"    if {guard}:\n        wandb.init(project='p')\n"
    before = f"{HEAD}{START}def main():\n{begins}    {joins}\n\nmain()\n"
    after = f"{HEAD}{START}def main():\n    {joins}\n{begins}\nmain()\n"
    assert _codes(before) == ["AR103"]
    assert _codes(after) == []


def test_who_leaves_early_leaves_nobody_out() -> None:
    """A return of the others, and an answer that an object keeps."""
    leaves = "    if helpers.get_rank() != 0:\n        return\n    os.makedirs('runs')\n"
    keeps = "class Run:\n    def __init__(self):\n        self.main = helpers.is_main()\n\n"
    makes = "    run = Run()\n    {}\n    if run.main:\n        wandb.init(project='p')\n    {}\n"
    join = "dist.init_process_group('nccl')"
    assert _codes(f"{HEAD}def make():\n{leaves}\ndef main():\n    make()\n    {join}\n\nmain()\n") == ["AR108"]
    assert _codes(f"{HEAD}{keeps}def main():\n{makes.format('', join)}\nmain()\n") == ["AR103"]


def test_a_rank_that_the_launcher_gives_is_known_from_the_start() -> None:
    """The environment tells it before anything is joined; and a program that never joins is another matter."""
    begins = "    if int(os.environ['RANK']) == 0:\n        wandb.init(project='p')\n"
    assert _codes(f"{HEAD}def main():\n{begins}    dist.init_process_group('nccl')\n\nmain()\n") == []
    asks = "    if helpers.is_main():\n        wandb.init(project='p')\n"
    assert _codes(f"{HEAD}def main():\n{asks}    dist.barrier()\n\nmain()\n") == []


def _codes(text: str) -> list[str]:
    files = {"train.py": text.encode(), "helpers.py": HELPERS.encode()}
    return [finding.code for finding in check(files, Settings(select=("AR10", "AR110"))).findings]
