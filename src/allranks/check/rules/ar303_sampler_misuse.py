"""AR303: a distributed sampler that is told a wrong world, or that no loader follows."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.interpret.values import OF_HOST, Value
from allranks.check.program import Event, Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.survey.unagreed import trains_alone
from allranks.check.tables.data import LOADERS
from allranks.check.tree.origins import latest
from allranks.check.tree.syntax import (
    arguments,
    function_of,
    given,
    has_stars,
    is_constant,
    keyword,
    name_of,
    own,
    tail_of,
)
from allranks.check.tree.worlds import World, swapped, world_of
from allranks.findings import Finding

_JOINS = "torch.distributed.init_process_group"
_SAMPLER = "torch.utils.data.DistributedSampler"
_BOTH = "the loader gets a sampler and shuffle=True"
_REFUSED = ("The loader raises on all ranks.", "Leave shuffle out: the sampler shuffles.")
_SINGLE = (
    "a DistributedSampler yields single indices, and the loader expects batches of indices from batch_sampler",
    "The loader raises on all ranks as soon as there are several.",
    "Pass it as sampler, or put a BatchSampler around it.",
)
_PARTED = (
    "Some parts of the data are read by several ranks, others by none.",
    "Take the rank and the number of ranks from the same group.",
)
# Calls that deal data out: where the number of ranks and the rank stand, and what these are called.
_SHARDING = frozenset({"datasets", "tensorflow", "tensorflow_datasets"})  # whose shard takes these in this order
_SIZES, _RANKS = ("num_replicas", "world_size", "num_shards"), ("rank", "index", "shard_id")
_PLACES = {
    "DistributedSampler": ((1, _SIZES), (2, _RANKS)),
    "StatefulDistributedSampler": ((1, _SIZES), (2, _RANKS)),
    "split_dataset_by_node": ((2, _SIZES), (1, _RANKS)),
    "shard": ((0, _SIZES), (1, _RANKS)),
}
_TWICE = (
    "this sampler gives each process its part, and Lightning divides that part again: it puts a sampler around it",
    "Each of N processes reads only 1/N of its part; most of the data is never read.",
    "Let it inherit from torch's DistributedSampler, or give the Trainer use_distributed_sampler=False.",
)
_UNUSED = ("Every rank reads all of the data.", "Give the sampler to the loader.")


class SamplerMisuse(LocalRule, ProgramRule):
    """
    ## What it does
    Finds a sampler or split with wrong numbers:

    - a `DistributedSampler` whose `num_replicas` is the number of GPUs of this host, or one that no loader gets
    - a loader with a `DistributedSampler` and `shuffle=True`, also by a default, or that takes it as `batch_sampler`
    - a rank and a number of ranks that do not belong together, in a sampler, `split_dataset_by_node` or `shard`:
      swapped, or one of a data-parallel group and the other of all processes
    - a sampler of the project that divides by rank, in a loader of Lightning, which divides again what is no
      `DistributedSampler`

    The local rank as its `rank` is AR306.

    ## Why is this bad
    The number of GPUs of a host is right on one host, and wrong on two. A loader without its sampler reads everything.

    ## What happens with N processes
    The hosts (or all processes) read the same part of the data. With two hosts each sample is read twice in an epoch. A
    loader with a sampler and `shuffle=True`, or with one as batch sampler, raises on all ranks.

    ## Known problems
    A program that is only intended for one host is reported, too.

    ## Use instead
    Omit `rank` and `num_replicas`: the sampler takes them from torch.distributed.
    """

    code, name, severity, row = "AR303", "sampler-misuse", "error", "data"
    cluster = "Every host reads the same part of the data."
    advice = "Omit rank and num_replicas, or pass dist.get_rank() and dist.get_world_size()."
    words = ("DistributedSampler", "split_dataset_by_node", ".shard(")
    nodes = (ast.Call,)
    calls = (*LOADERS, *_PLACES)
    bad = (
        Example(
            {
                "train.py": """\
import torch
from torch.utils.data import DistributedSampler


def make(data, gpu, batch):
    sampler = DistributedSampler(data, num_replicas=8, rank=gpu)
    return torch.utils.data.DataLoader(data, batch, shuffle=True)


def other(data, batch, several):
    sampler = DistributedSampler(data) if several else None
    return torch.utils.data.DataLoader(data, batch, shuffle=True, sampler=sampler)


def third(data, batch, several):
    batches = None
    if several:
        batches = DistributedSampler(data)
    return torch.utils.data.DataLoader(data, batch, batch_sampler=batches)
"""
            },
            at=(6, 12, 19),
        ),
        Example(
            {
                "data.py": """\
import mpu
import torch.distributed as dist
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DistributedSampler


def part(rows, rank, world_size):
    yield split_dataset_by_node(rows, world_size, rank)
    yield DistributedSampler(rows, rank=mpu.get_data_parallel_rank())
    yield DistributedSampler(rows, mpu.get_data_parallel_world_size(), dist.get_rank())
"""
            },
            at=(8, 9, 10),
        ),
        Example(
            {
                "module.py": """\
import lightning as L
from torch.utils.data import DataLoader
from buckets import Buckets


class Data(L.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(self.rows, batch_size=8, sampler=Buckets(self.rows))
""",
                "buckets.py": """\
import torch.distributed as dist
from torch.utils.data import Sampler


class Buckets(Sampler):
    def __init__(self, rows):
        self.rows, self.rank, self.num_replicas = rows, dist.get_rank(), dist.get_world_size()

    def __iter__(self):
        return iter(range(self.rank, len(self.rows), self.num_replicas))
""",
                "fit.py": """\
import lightning as L
from module import Data

L.Trainer(devices=8).fit(model, Data())
""",
            },
            at=(8,),
        ),
        Example(
            {
                "train.py": """\
import torch
from torch.utils.data.distributed import DistributedSampler


def make(data, rank):
    gpus = torch.cuda.device_count()
    return DistributedSampler(data, num_replicas=gpus, rank=rank)
"""
            },
            at=(7,),
        ),
    )
    good = (
        Example(
            {
                "data.py": """\
import torch.distributed as dist
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DistributedSampler


def part(rows, mesh, dp_group, rank, world_size):
    yield DistributedSampler(rows, num_replicas=mesh["dp"].size(), rank=mesh["dp"].get_local_rank())
    yield DistributedSampler(rows, num_replicas=dist.get_world_size(dp_group), rank=dist.get_rank(dp_group))
    yield split_dataset_by_node(rows, rank, world_size)
    yield load_dataset(rows).shard(dist.get_world_size(), dist.get_rank())
"""
            }
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler


def make(data, rank):
    return DistributedSampler(data, num_replicas=dist.get_world_size(), rank=rank)


def loader(data, several):
    sampler = DistributedSampler(data) if several else None
    return DataLoader(data, 8, shuffle=sampler is None, sampler=sampler)


def batches(data):
    sampler = DistributedSampler(data)
    sampler = BatchSampler(sampler, 8, drop_last=True)
    return DataLoader(data, batch_sampler=sampler)


def outside(data):
    sampler = DistributedSampler(data)

    def loader():
        return DataLoader(data, 8, sampler=sampler)

    return loader
"""
            }
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for event in program.calls(*LOADERS):
            if event.place in program.resplit and not trains_alone(program):
                yield self.found(event, _TWICE[0], cluster=_TWICE[1], advice=_TWICE[2])
            elif event.active and _is_refused(event):
                yield self.found(event, _BOTH, cluster=_REFUSED[0], advice=_REFUSED[1])
        joined = [event.argument(3, "world_size") for event in program.calls(_JOINS)]
        if program.one_node or program.facts.one_host or any(size is not None and _is_of_host(size) for size in joined):
            return  # the world is this host
        for event in program.calls(_SAMPLER):
            size = event.argument(1, "num_replicas")
            if event.active and size is not None and _is_of_host(size):
                yield self.found(event, "the sampler's num_replicas counts the GPUs of one host")

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call):
            return
        if (told := _told(node, file)) is not None:
            yield self.local(file, node, told, cluster=_PARTED[0], advice=_PARTED[1])
            return
        if name_of(node, file) in LOADERS:
            sampler = keyword(node, "sampler")
            if sampler is not None and is_constant(keyword(node, "shuffle"), True) and _is_sampler(sampler, file):
                yield self.local(file, node, _BOTH, cluster=_REFUSED[0], advice=_REFUSED[1])
            batches = keyword(node, "batch_sampler")
            if batches is not None and _is_sampler(batches, file):
                yield self.local(file, node, _SINGLE[0], cluster=_SINGLE[1], advice=_SINGLE[2])
            return
        size = given(node, 1, "num_replicas")
        if name_of(node, file) != _SAMPLER:
            return
        if size is not None and _counts_gpus(size, file):
            yield self.local(
                file, node, f"the sampler's num_replicas, {ast.unparse(size)}, counts the GPUs of one host"
            )
        elif (name := _left_lying(node, file)) is not None:
            yield self.local(
                file,
                node,
                f"nothing reads {name}: the loader reads all of the data",
                cluster=_UNUSED[0],
                advice=_UNUSED[1],
            )


def _is_of_host(size: Value) -> bool:
    return bool(size.flags & OF_HOST)


def _is_refused(event: Event) -> bool:
    """Whether a loader is given a sampler, at least where there are several processes, and is told to shuffle, by what
    a call of its function passes or leaves out."""
    shuffle, sampler = event.argument("shuffle", 2), event.argument("sampler", 3)
    return shuffle is not None and shuffle.constant is True and sampler is not None and bool(sampler.instance)


def _told(call: ast.Call, file: File) -> str | None:
    """Return what is said of a rank and a number of ranks that do not belong together."""
    name = tail_of(call)
    if name == "shard" and _SHARDING.isdisjoint(dotted.partition(".")[0] for dotted in file.imports.values()):
        return None
    places = _PLACES.get(name)
    if places is None or has_stars(call) or file.is_test:
        return None
    (size_at, sizes), (rank_at, ranks) = places
    size = next((one for word in sizes if (one := given(call, size_at, word)) is not None), None)
    rank = next((one for word in ranks if (one := given(call, rank_at, word)) is not None), None)
    if rank is not None and size is not None and swapped(rank, size, file):
        return f"{name} gets {ast.unparse(rank)} as the rank, and {ast.unparse(size)} as the number of ranks"
    of_rank = world_of(rank, file) if rank is not None else None
    of_size: World | None = world_of(size, file) if size is not None else None
    if name.endswith("Sampler") and rank is not None:  # what is left out is that of the whole job
        of_size = "all" if size is None or is_constant(size, None) else of_size
    if of_rank is None or of_size is None or of_rank == of_size:
        return None
    whose = (
        ("the rank is that in a group", "all processes") if of_rank == "group" else ("the rank is global", "a group")
    )
    return f"{whose[0]}, and the number of ranks that of {whose[1]}"


def _is_sampler(sampler: ast.expr, file: File) -> bool:
    """One that is there wherever there are several processes."""
    made = latest(sampler, file) or [sampler]
    made = [side for one in made for side in ((one.body, one.orelse) if isinstance(one, ast.IfExp) else (one,))]
    samplers = [isinstance(one, ast.Call) and name_of(one, file) == _SAMPLER for one in made]
    return any(samplers) and all(one or is_constant(at, None) for one, at in zip(samplers, made, strict=True))


def _left_lying(call: ast.Call, file: File) -> str | None:
    """Return the variable of a function that holds the sampler, if nothing reads it and a loader is made there."""
    above = next((p for p in file.parents(call) if isinstance(p, ast.Assign)), None)
    function = function_of(call, file)
    if above is None or function is None or above.value is not call or not isinstance(above.targets[0], ast.Name):
        return None
    name = above.targets[0].id
    nodes = walk(function)
    read = any(isinstance(at, ast.Name) and at.id == name and isinstance(at.ctx, ast.Load) for at in nodes)
    declared = any(isinstance(at, ast.Global | ast.Nonlocal) and name in at.names for at in nodes)
    loaders = [at for at in nodes if isinstance(at, ast.Call) and name_of(at, file) in LOADERS]
    data = {ast.dump(at) for one in loaders for at in arguments(one)}
    loads = bool(loaders) and (not call.args or ast.dump(call.args[0]) in data)
    return name if loads and not read and not declared else None


def _counts_gpus(size: ast.expr, file: File) -> bool:
    if isinstance(size, ast.Call):
        return name_of(size, file) == "torch.cuda.device_count"
    scope = function_of(size, file)
    if not isinstance(size, ast.Name) or scope is None:
        return False
    values = [
        at.value
        for at in own(scope)
        if isinstance(at, ast.Assign) and any(isinstance(t, ast.Name) and t.id == size.id for t in at.targets)
    ]
    return bool(values) and all(isinstance(v, ast.Call) and _counts_gpus(v, file) for v in values)
