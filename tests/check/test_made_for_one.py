"""A folder of rank 0 alone, of which each rank makes its own name by its own clock."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TRAIN = """\
import os
import time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def named(root):
    return os.path.join(root, f"run_{NAMED}")


def main(model, loader, root):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    out = named(root)
    SENT
    if rank == 0:
        os.makedirs(os.path.join(out, "episodes"))
    dist.barrier()
    told = open(os.path.join(out, "episodes", f"rank{rank}.csv"), "w")
    model = DDP(model)
    for batch in loader:
        model(batch).mean().backward()
    told.close()


main(torch.nn.Linear(3, 3), [], "runs")
"""


@pytest.mark.parametrize(
    ("named", "sent", "lines"),
    [
        ("int(time.time())", "pass", [20]),
        ("os.environ['JOB']", "pass", []),
        ("int(time.time())", "box = [out]; dist.broadcast_object_list(box, 0); out = box[0]", []),
        ("int(time.time())", "os.makedirs(os.path.join(out, 'episodes'), exist_ok=True)", [16]),
    ],
)
def test_who_writes_into_a_folder_that_rank_0_has_named_for_itself(named: str, sent: str, lines: list[int]) -> None:
    """Where each makes its own, that is told in its place."""
    text = TRAIN.replace("NAMED", named).replace("SENT", sent)
    found = check({"train.py": text.encode()}, Settings(select=("AR107",))).findings
    assert [one.place.line for one in found] == lines
