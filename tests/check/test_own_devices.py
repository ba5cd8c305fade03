"""A process that has the number of its own GPU and stays on the current one."""

from __future__ import annotations

import textwrap

from allranks.check.engine import Settings, check

WORKER = """\
import torch
import torch.distributed as dist
from torch.multiprocessing import spawn

def worker(local_rank, node, args):
    device = torch.device("cuda", local_rank)
    {binds}
    dist.init_process_group(args.backend, rank=node * 8 + local_rank, world_size=args.size)
    {uses}

def main(args):
    spawn(worker, args=(args.node, args), nprocs=8)
"""


def lines(binds: str, uses: str) -> list[int]:
    text = textwrap.dedent(WORKER.format(binds=binds, uses=uses))
    return [f.place.line for f in check({"train.py": text.encode()}, Settings(select=("AR605",))).findings]


def test_a_device_that_is_set_is_no_context() -> None:
    assert lines("torch.cuda.device(device); torch.cuda.set_device(device)", "dist.barrier()") == []
    assert lines("stack.enter_context(torch.cuda.device(device))", "dist.barrier()") == []


def test_where_nothing_uses_the_current_gpu_nothing_is_lost() -> None:
    assert lines("torch.cuda.device(device)", "dist.all_reduce(torch.zeros(5, device=device))") == []
