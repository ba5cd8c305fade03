"""AR306: the rank on the node stands where the rank in the job is meant."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.origins import origins
from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.source import File
from allranks.check.splits import SPLITTERS, split_at
from allranks.check.syntax import given, name_of, tail_of
from allranks.check.values import LOCAL_RANK, RANKS
from allranks.findings import Finding

# Call -> position and keyword of the rank that it takes.
_TAKES = {
    "torch.distributed.init_process_group": (4, "rank"),
    "torch.utils.data.DistributedSampler": (2, "rank"),
    "jax.distributed.initialize": (2, "process_id"),
    "torchdata.stateful_dataloader.sampler.StatefulDistributedSampler": (2, "rank"),
}


class LocalRankAsGlobalRank(LocalRule, ProgramRule):
    """
    ## What it does
    Finds the local rank (`LOCAL_RANK`, `args.local_rank`, `get_local_rank()`) given as the rank of the process: to
    `init_process_group`, to a `DistributedSampler`, or as the index of the part of the data that this process reads.

    ## Why is this bad
    Local ranks count from 0 on every node. With one node both are the same, so nobody sees it until the second one.

    ## What happens with N processes
    With M nodes, M processes read the same part and the other parts are read by nobody; two processes that say rank 0
    to `init_process_group` never meet.

    ## Known problems
    A program that is only ever meant for one node is right; `rank` is right there too. Where each node holds data of
    its own that is split among its processes, the local rank is what is meant; then say the number of local processes
    next to it (`LOCAL_WORLD_SIZE`), and the rule is silent.

    ## Use instead
    The global rank: `torch.distributed.get_rank()`, the variable `RANK`, `jax.process_index()`.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR306", "local-rank-as-global-rank", "error", "data"
    cluster = "On a second node the local ranks begin at 0 again: parts are read twice, others never, or ranks collide."
    advice = "Use the global rank (dist.get_rank(), RANK, jax.process_index())."
    words = ("local_rank", "LOCAL_RANK", "LOCALID", "local_process_index", "get_node_local_rank")
    nodes = (ast.Call, ast.Subscript, ast.Compare)
    calls = (*_TAKES, *SPLITTERS)
    bad = (
        Example(
            {
                "train.py": """\
import os
import torch.distributed as dist
from torch.utils.data import DistributedSampler

local = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl", rank=local, world_size=8)
sampler = DistributedSampler([], num_replicas=dist.get_world_size(), rank=local)
"""
            },
            at=(6, 7),
        ),
        Example(
            {
                "data.py": """\
import torch.distributed as dist


def part(files, args):
    return files[args.local_rank :: dist.get_world_size()]
"""
            },
            at=(5,),
        ),
    )
    good = (
        # In a dimension of a mesh.
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from torch.utils.data import DistributedSampler


class Recipe:
    def __init__(self, mesh, rows):
        dist.init_process_group("nccl")
        dp_mesh = mesh["dp"]
        self.size, self.place = dp_mesh.size(), dp_mesh.get_local_rank()
        self.sampler = DistributedSampler(rows, num_replicas=self.size, rank=self.place)
        self.mine = rows.chunk(self.size)[mesh.get_local_rank("tp")]
"""
            }
        ),
        Example(
            {
                "train.py": """\
import os
import torch.distributed as dist
from torch.utils.data import DistributedSampler

local = int(os.environ["LOCAL_RANK"])
rank = int(os.environ["NODE_RANK"]) * 8 + local
dist.init_process_group("nccl", rank=rank, world_size=16)
sampler = DistributedSampler([], num_replicas=dist.get_world_size(), rank=dist.get_rank())
device = f"cuda:{local}"
mine = [1, 2, 3][local :: int(os.environ["LOCAL_WORLD_SIZE"])]
other = int(os.environ.get("RANK", os.environ["LOCAL_RANK"]))
sampler = DistributedSampler([], rank=other)
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if file.is_test:
            return
        if isinstance(node, ast.Call) and name_of(node, file) in _TAKES:
            where = _TAKES[name_of(node, file)]
            rank = given(node, *where)
            if rank is not None and origins(rank, file) == {"local"}:
                yield self.local(file, node, f"{tail_of(node)} is given the rank on the node as the rank in the job")
            return
        split = split_at(node, file)
        if split is None or origins(split.rank, file) != {"local"} or _within_node(node):
            return
        yield self.local(file, node, f"{ast.unparse(split.source)} is dealt out by the rank on the node")

    def check(self, program: Program) -> Iterator[Finding]:
        """Look at ranks that come from elsewhere: through parameters, attributes, other files."""
        for event in program.calls(*_TAKES):
            rank = event.argument(*_TAKES[event.name])
            if event.active and rank is not None and rank.number and rank.taint & RANKS == LOCAL_RANK:
                name = event.name.rpartition(".")[2]
                yield self.found(event, f"{name} is given the rank on the node as the rank in the job")


def _within_node(node: ast.AST) -> bool:
    """The local rank is set against the number of processes on the node."""
    text = ast.unparse(node).lower()
    return "local_world" in text or "local_size" in text or "device_count" in text or "per_node" in text
