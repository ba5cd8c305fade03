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
