"""The rank on the node, where it is that in the job, and where it is something else: AR306."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

NODES = "# torchrun --nnodes=4 --nproc-per-node=8 train.py\n"
JOINS = (
    NODES
    + """
import os
import torch.distributed as dist


class Runner:
    def __init__(self, device):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        if device != "gpu":
            os.environ["MASTER_ADDR"] = {address}
            self.join()
            dist.init_process_group("gloo", rank=self.local_rank, world_size=int(os.environ["WORLD_SIZE"]))


Runner("cpu")
"""
)


@pytest.mark.parametrize(("address", "found"), [('"localhost"', []), ('os.environ["HEAD"]', ["AR306"])])
def test_on_one_host_the_rank_there_is_that_in_the_job(address: str, found: list[str]) -> None:
    """Whoever sets MASTER_ADDR to his own host meets nobody of another one."""
    sources = {"train.py": JOINS.format(address=address).encode()}
    assert [f.code for f in check(sources, Settings(select=("AR306",))).findings] == found


SEEDS = (
    NODES
    + """
import os
import random
import torch.distributed as dist

local_rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl")
rows = Rows(rank=local_rank)
seen = {what}
random.seed(7 + seen)
"""
)


@pytest.mark.parametrize(("what", "found"), [("rows.get_iteration()", []), ("int(local_rank)", ["AR306"])])
def test_what_an_object_says_that_has_the_rank_is_no_rank(what: str, found: list[str]) -> None:
    """A seed with how far an iterator has come."""
    sources = {"train.py": SEEDS.format(what=what).encode()}
    assert [f.code for f in check(sources, Settings(select=("AR306",))).findings] == found
