"""AR306: the rank on the node stands where the rank in the job is meant."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.interpret.values import LOCAL_RANK, RANK, RANKS
from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.asked_there import Files, call_at
from allranks.check.tree.met_here import is_met_here
from allranks.check.tree.node_seeds import is_of_node, seed_of
from allranks.check.tree.origins import origins, reached, values
from allranks.check.tree.ranks_of_node import is_kept_as_rank, is_local
from allranks.check.tree.splits import handed_at, split_at
from allranks.check.tree.syntax import calls_of, function_of, given, name_of, speaks_of, tail_of
from allranks.findings import Finding

# Call -> position and keyword of the rank that it takes.
_TAKES = {
    "torch.distributed.init_process_group": (4, "rank"),
    "torch.utils.data.DistributedSampler": (2, "rank"),
    "jax.distributed.initialize": (2, "process_id"),
    "torchdata.stateful_dataloader.sampler.StatefulDistributedSampler": (2, "rank"),
}


_GIVEN = "gets the rank on the node as the rank in the job"
_ASKED = re.compile(r"local_rank\(\)")
_READS = re.compile(r"data|shard|sampl|load|stream|reader|corpus|split|part|chunk|batch", re.IGNORECASE)
_GIVES_NUMBER = re.compile(r"(size|num|number|count|steps|length)$", re.IGNORECASE)
_HERE = re.compile(r"local|device_count|gpus?$|per_node|n_?procs?$|LOCAL_WORLD", re.IGNORECASE)
_HOSTS = re.compile(r"node|machine|host", re.IGNORECASE)
_SEEDED = (
    "Processes with the same place on different nodes draw the same: their data and environments repeat each other.",
    "Add the rank in the job to the seed.",
)


class LocalRankAsGlobalRank(LocalRule, ProgramRule):
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
    mentions several nodes. If each node holds its own data, divided among its processes, the local rank is right: give
    the number of local processes next to it (`LOCAL_WORLD_SIZE`), and the rule is silent.

    ## Use instead
    The global rank: `torch.distributed.get_rank()`, the variable `RANK`, `jax.process_index()`.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR306", "local-rank-as-global-rank", "error", "data"
    of_nodes = True
    cluster = "On a second node the local ranks begin at 0 again: parts are read twice, others never, or ranks collide."
    advice = (
        "Use the global rank (dist.get_rank(), RANK, jax.process_index()), and the number of all processes beside it."
    )
    words = (
        "init_process_group",
        "shard_id",
        "local_rank",
        "LOCAL_RANK",
        "LOCALID",
        "local_process_index",
        "get_node_local_rank",
    )
    nodes = (ast.Call, ast.Subscript, ast.Compare, ast.Assign, ast.AugAssign)
    bad = (
        Example(
            {
                "train.py": """\
import os
import torch

rank = int(os.getenv("LOCAL_RANK", "0"))
cfg.seed += rank
torch.manual_seed(cfg.start + rank)
"""
            },
            at=(5, 6),
        ),
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
        Example(
            {
                "env.py": """\
import os
from shards import TokenShards


class World:
    def __init__(self):
        if "SLURM_NTASKS" in os.environ:
            self.rank = int(os.environ["SLURM_LOCALID"])
            self.world_size = int(os.environ["SLURM_NTASKS"])
            self.local_rank = int(os.environ["SLURM_LOCALID"])


def reader(files, world):
    return TokenShards(files, 1024, world.local_rank, world.world_size)


def batches(files, lengths, local_rank, world_size):
    os.environ["RANK"] = str(local_rank)
    return Packed(lengths=lengths, num_replicas=world_size, rank=local_rank)
"""
            },
            at=(8, 14, 18, 19),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
import torch.multiprocessing as mp


def work(gpu, args):
    world = args.gpus * args.num_nodes
    dist.init_process_group("nccl", init_method=args.url, world_size=world, rank=gpu)


def main(args):
    mp.spawn(work, nprocs=args.gpus, args=(args,))
"""
            },
            at=(7,),
        ),
    )
    good = (
        Example(
            {
                "env.py": """\
import os
from shards import TokenShards

rank = int(os.environ["LOCAL_RANK"])
world_size = int(os.environ["LOCAL_WORLD_SIZE"])


def images(folder, device_id, local_rank):
    local = FileReader(file_root=folder, shard_id=device_id, num_shards=torch.cuda.device_count())
    return FileReader(file_root=folder, shard_id=local_rank, num_shards=int(os.environ["LOCAL_WORLD_SIZE"]))


def reader(files, world):
    copy = build(world.local_rank, world.world_size)
    return TokenShards(files, 1024, world.rank, world.world_size, local_rank=world.local_rank)
""",
                "train.py": """\
import torch.distributed as dist
import torch.multiprocessing as mp


def work(gpu, args):
    rank = args.node * args.gpus + gpu
    dist.init_process_group("nccl", init_method=args.url, world_size=args.gpus * args.num_nodes, rank=rank)


def main(args):
    mp.spawn(work, nprocs=args.gpus, args=(args,))
""",
            }
        ),
        # In a dimension of a mesh.
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from torch.utils.data import DistributedSampler


class Recipe:
    def __init__(self, mesh, rows):
        dist.init_process_group("nccl")
        dp = mesh["dp"]
        self.size, self.place = dp.size(), dp.get_local_rank()
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
batch_size = get_batch_size(64, local, dist.get_world_size())
"""
            }
        ),
        # It is called so, and is the rank in the job.
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from torch.utils.data import DistributedSampler
from comm import get_local_rank

dist.init_process_group("nccl")
sampler = DistributedSampler([], num_replicas=dist.get_world_size(), rank=get_local_rank())
""",
                "comm.py": """\
import torch.distributed as dist


def get_local_rank():
    return dist.get_rank() if dist.is_initialized() else 0
""",
            }
        ),
    )

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.Call) and name_of(node, file) in _TAKES:
            where = _TAKES[name_of(node, file)]
            rank = given(node, *where)
            if rank is not None and _is_spawned(rank, node, file):
                yield self.local(
                    file, node, f"{tail_of(node)} gets the number of the process on its host as the rank in the job"
                )
            elif rank is not None and is_local(rank, file) and not is_met_here(node, file):
                yield self.local(file, node, f"{tail_of(node)} {_GIVEN}")
            return
        if isinstance(node, ast.Assign):
            if is_kept_as_rank(node, file):
                yield self.local(file, node, f"the rank on the node is kept as {ast.unparse(node.targets[0])}")
            return
        if (seed := seed_of(node)) is not None:
            if is_of_node(seed, file) and not _within_node(seed):
                yield self.local(
                    file, node, "the seed holds the rank on the node", cluster=_SEEDED[0], advice=_SEEDED[1]
                )
            return
        if isinstance(node, ast.Call) and (paired := _paired(node, file)) is not None:
            yield self.local(file, paired, f"{tail_of(node)} {_GIVEN}")
            return
        split = split_at(node, file) or (handed_at(node, file) if _reads(node) else None)
        if split is None or origins(split.rank, file) != {"local"} or _within_node(node):
            return
        told = f"{ast.unparse(split.source)} is split by the rank on the node"
        if split.how == "handed":
            told = f"{tail_of(node)} {_GIVEN}"
        yield self.local(file, node, told)

    def stands(self, finding: Finding, program: Program) -> bool:
        """Whether what a function of another file gives is the local rank, as it is called."""
        at = finding.place
        lines = program.facts.lines.get(at.path, [])[at.line - 1 : at.end_line]
        if not finding.message.endswith(_GIVEN) or not any(map(_ASKED.search, lines)):
            return True
        given = (e.argument(*_TAKES[e.name]) for e in program.calls(*_TAKES) if e.place == at)
        return not any(rank is not None and rank.number and rank.taint & RANKS == RANK for rank in given)

    def check(self, program: Program) -> Iterator[Finding]:
        """Look at ranks that come from elsewhere: through parameters, attributes, other files."""
        files = Files(program.facts.lines)
        for event in program.calls(*_TAKES):
            rank = event.argument(*_TAKES[event.name])
            if event.active and rank is not None and rank.number and rank.taint & RANKS == LOCAL_RANK:
                there = call_at(event.place, files)
                if there is not None and is_met_here(*there):
                    continue
                name = event.name.rpartition(".")[2]
                yield self.found(event, f"{name} {_GIVEN}")


def _paired(call: ast.Call, file: File) -> ast.expr | None:
    """``Reader(shard_id=local_rank, num_shards=world_size)``: the rank."""
    named = {k.arg: k.value for k in call.keywords if k.arg}
    ranks = [named[key] for key in ("rank", "shard_id", "shard_index", "process_index") if key in named]
    sizes = [named[key] for key in ("num_replicas", "num_shards", "world_size", "process_count") if key in named]
    if not ranks or not sizes or not (is_local(ranks[0], file) or _is_device(ranks[0])):
        return None
    return None if any(speaks_of(at, _HERE) for at in reached(sizes[0], file)) else ranks[0]


def _is_device(rank: ast.expr) -> bool:
    return isinstance(rank, ast.Name | ast.Attribute) and tail_of(rank) in ("device_id", "gpu_id")


def _is_spawned(rank: ast.expr, call: ast.Call, file: File) -> bool:
    """The number that ``spawn`` gives, as it is, where the size of the world is a product with that of the hosts."""
    function, size = function_of(call, file), given(call, 3, "world_size")
    if function is None or size is None or not function.args.args:
        return False
    number, names = function.args.args[0].arg, [rank, *values(rank, file)]
    if not any(isinstance(at, ast.Name) and at.id == number for at in names) or len(names) > 2:
        return False
    spawns = (at for tail in ("spawn", "start_processes") for at in calls_of(file).get(tail, ()))
    if not any(at.args and tail_of(at.args[0]) == function.name for at in spawns):
        return False
    products = (at for whole in reached(size, file) for at in walk(whole) if isinstance(at, ast.BinOp))
    return any(isinstance(at.op, ast.Mult) and speaks_of(at, _HOSTS) for at in products)


def _reads(node: ast.AST) -> bool:
    """A class or function that is given data to be dealt out, and the rank under no name that says which one."""
    if not isinstance(node, ast.Call) or not _READS.search(tail_of(node)) or _GIVES_NUMBER.search(tail_of(node)):
        return False
    return not any(k.arg and ("local" in k.arg or "device" in k.arg or "gpu" in k.arg) for k in node.keywords)


def _within_node(node: ast.AST) -> bool:
    """The local rank is set against the number of processes on the node."""
    text = ast.unparse(node).lower()
    return "local_world" in text or "local_size" in text or "device_count" in text or "per_node" in text
