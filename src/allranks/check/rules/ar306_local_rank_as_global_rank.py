"""AR306: the rank on the node stands where the rank in the job is meant."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.origins import origins
from allranks.check.tree.splits import handed_at, split_at
from allranks.check.tree.syntax import function_of, given, name_of, tail_of, words_of
from allranks.check.tree.words import mentions, parts, says
from allranks.findings import Finding

# Call -> position and keyword of the rank that it takes.
_TAKES = {
    "torch.distributed.init_process_group": (4, "rank"),
    "torch.utils.data.DistributedSampler": (2, "rank"),
    "jax.distributed.initialize": (2, "process_id"),
    "torchdata.stateful_dataloader.sampler.StatefulDistributedSampler": (2, "rank"),
}
_RANKS = ("rank", "shard_id", "shard_index", "process_index")
_SIZES = ("num_replicas", "num_shards", "world_size", "process_count")
_LOCAL = ("local_rank", "LOCAL_RANK", "local_process_index")
_SIZES_OF_JOB = ("WORLD_SIZE", "SLURM_NTASKS", "SLURM_NPROCS", "OMPI_COMM_WORLD_SIZE", "hvd.size()")
_OF_NODE = ("local_world", "local_size", "device_count", "per_node", "num_gpus", "n_gpu", "ngpus", "nproc")
_SEEDERS = ("seed", "manual_seed", "manual_seed_all", "set_seed", "seed_everything", "set_random_seed")
# What makes a seed differ between processes.
_APART = frozenset({"local", "global", "node", "group", "random", "clock", "identity"})
_SEEDED = (
    "Processes with the same place on different nodes draw the same: their data and environments repeat each other.",
    "Add the rank in the job to the seed.",
)


class LocalRankAsGlobalRank(LocalRule):
    """
    ## What it does
    Finds the local rank (`LOCAL_RANK`, `args.local_rank`, `get_local_rank()`) used as the rank of the process: in
    `init_process_group`, in a `DistributedSampler`, or as the index of the part of the data. Also
    `rank = int(os.environ["LOCAL_RANK"])` beside the world size of the whole job, and a seed to which the local rank is
    added.

    ## Why is this bad
    Local ranks count from 0 on every node. With one node both are equal, so the fault appears with the second node.

    ## What happens with N processes
    With M nodes, M processes read the same part, and no process reads the other parts. Two processes that are rank 0 in
    `init_process_group` never connect.

    ## Known problems
    A program for one node only is right. Confidence is low if nothing in the code, scripts and pages of the project
    mentions several nodes. A number of local processes next to the local rank makes it right.

    ## Use instead
    The global rank: `torch.distributed.get_rank()`, the variable `RANK`, `jax.process_index()`.
    """

    code, name, severity, row = "AR306", "local-rank-as-global-rank", "error", "data"
    of_nodes = True
    cluster = "On a second node the local ranks begin at 0 again: parts are read twice, others never, or ranks collide."
    advice = (
        "Use the global rank (dist.get_rank(), RANK, jax.process_index()), and the number of all processes beside it."
    )
    words = ("local_rank", "LOCAL_RANK", "LOCALID", "local_process_index")
    nodes = (ast.Call, ast.Subscript, ast.Compare, ast.Assign, ast.AugAssign)
    bad = (
        """\
import os
import torch.distributed as dist
from torch.utils.data import DistributedSampler

# torchrun --nnodes 2 --nproc-per-node 8 train.py
local_rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl")
sampler = DistributedSampler([], num_replicas=dist.get_world_size(), rank=local_rank)  # <-- found
files = sorted(os.listdir("data"))[local_rank :: dist.get_world_size()]  # <-- found
""",
    )
    good = (
        """\
import os
import torch.distributed as dist
from torch.utils.data import DistributedSampler

# torchrun --nnodes 2 --nproc-per-node 8 train.py
local_rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl")
sampler = DistributedSampler([], num_replicas=dist.get_world_size(), rank=dist.get_rank())
files = sorted(os.listdir("/local"))[local_rank :: int(os.environ["LOCAL_WORLD_SIZE"])]
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.Assign):
            if _is_kept_as_rank(node, file):
                yield self.local(file, node, f"the rank on the node is kept as {ast.unparse(node.targets[0])}")
            return
        if (seed := _seed_of(node)) is not None:
            if origins(seed, file) & _APART == {"local"} and not _is_within_node(seed):
                what = "the rank on the node is added to a seed"
                yield self.local(file, node, what, cluster=_SEEDED[0], advice=_SEEDED[1])
            return
        if isinstance(node, ast.Call) and (rank := _given_rank(node, file)) is not None:
            within = _is_joined_here(node, file) or (name_of(node, file) not in _TAKES and _is_within_node(node))
            if _is_local(rank, file) and not within:
                yield self.local(file, node, f"{tail_of(node)} gets the rank on the node as the rank in the job")
            return
        split = split_at(node, file) or (handed_at(node, file) if says(tail_of(node), "reads") else None)
        cuts_data = split is not None and (split.how != "call" or mentions(split.source, "rows"))
        if split is not None and cuts_data and origins(split.rank, file) == {"local"} and not _is_within_node(node):
            yield self.local(file, node, f"{ast.unparse(split.source)} is split by the rank on the node")


def _given_rank(call: ast.Call, file: File) -> ast.expr | None:
    """Return the rank that a call takes as that in the job: it is known to do so, or is given the number of all."""
    if (where := _TAKES.get(name_of(call, file))) is not None:
        return given(call, *where)
    named = {one.arg: one.value for one in call.keywords if one.arg}
    size = next((named[key] for key in _SIZES if key in named), None)
    return next((named[key] for key in _RANKS if key in named), None) if size is not None else None


def _is_local(rank: ast.expr, file: File) -> bool:
    made = origins(rank, file)
    return made == {"local"} or (not made and any(word.lstrip("_") in _LOCAL for word in words_of(rank)))


def _is_kept_as_rank(assign: ast.Assign, file: File) -> bool:
    """``rank = int(os.environ["LOCAL_RANK"])`` in a file that asks for the number of all processes."""
    target = assign.targets[0]
    name = target.slice.value if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant) else ""
    if (name or tail_of(target)) not in ("rank", "RANK", "global_rank", "world_rank"):
        return False
    asks = file.says(*_SIZES_OF_JOB) and (tail_of(target) != "rank" or not file.says("global_rank"))
    return origins(assign.value, file) == {"local"} and asks and "else" not in ast.unparse(assign.value)


def _seed_of(node: ast.AST) -> ast.expr | None:
    """Return what a seed is set to, or what is added to one: ``seed += rank``, ``manual_seed(seed + rank)``."""
    if isinstance(node, ast.AugAssign):
        return node.value if isinstance(node.op, ast.Add) and "seed" in parts(tail_of(node.target)) else None
    seeds = isinstance(node, ast.Call) and tail_of(node) in _SEEDERS and bool(node.args)
    seed = node.args[0] if seeds and isinstance(node, ast.Call) else None
    return seed if isinstance(seed, ast.BinOp) and isinstance(seed.op, ast.Add) else None


def _is_joined_here(call: ast.Call, file: File) -> bool:
    """Whether its function has the processes join on this host: those of another one would never come."""
    function = function_of(call, file)
    text = file.code_in(function) if function is not None else ""
    return "MASTER_ADDR" in text and ("localhost" in text or "127.0.0.1" in text)


def _is_within_node(node: ast.AST) -> bool:
    """Whether the local rank stands beside the number of processes on the node."""
    text = ast.unparse(node).lower()
    return any(word in text for word in _OF_NODE)
