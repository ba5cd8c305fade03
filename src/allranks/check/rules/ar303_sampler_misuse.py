"""AR303: a distributed sampler that is told a wrong world, or that no loader follows."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.nodes import walk
from allranks.check.origins import latest
from allranks.check.rule import Example, LocalRule
from allranks.check.source import File
from allranks.check.syntax import function_of, given, is_constant, keyword, name_of, own
from allranks.check.tables.data import LOADERS
from allranks.findings import Finding

_SAMPLER = "torch.utils.data.DistributedSampler"
_REFUSED = ("The loader raises on all ranks.", "Leave shuffle out: the sampler shuffles.")
_UNUSED = ("Every rank reads all of the data.", "Give the sampler to the loader.")


class SamplerMisuse(LocalRule):
    """
    ## What it does
    Finds a `DistributedSampler` whose `num_replicas` is the number of GPUs of this host, one that is made and given to
    nobody, and a loader that is given one and `shuffle=True` as well. (The local rank as its `rank` is AR306.)

    ## Why is this bad
    The GPUs of a host are right on one host, and wrong on two. A loader without its sampler reads all.

    ## What happens with N processes
    The hosts (or all processes) read the same part of the data: with two hosts each sample is seen twice an epoch and
    counted as two. A loader with a sampler and `shuffle=True` raises on all ranks.

    ## Known problems
    A program that is never meant to run on two hosts is reported too.

    ## Use instead
    Leave `rank` and `num_replicas` out: the sampler asks torch.distributed.
    """

    code, name, severity, row = "AR303", "sampler-misuse", "error", "data"
    cluster = "Every host reads the same part of the data."
    advice = "Leave rank and num_replicas out, or pass dist.get_rank() and dist.get_world_size()."
    words = ("DistributedSampler",)
    nodes = (ast.Call,)
    calls = (_SAMPLER, *LOADERS)
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
"""
            },
            at=(6, 12),
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
                "train.py": """\
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def make(data, rank):
    return DistributedSampler(data, num_replicas=dist.get_world_size(), rank=rank)


def loader(data, several):
    sampler = DistributedSampler(data) if several else None
    return DataLoader(data, 8, shuffle=sampler is None, sampler=sampler)


def outside(data):
    sampler = DistributedSampler(data)

    def loader():
        return DataLoader(data, 8, sampler=sampler)

    return loader
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call):
            return
        if name_of(node, file) in LOADERS:
            sampler = keyword(node, "sampler")
            if sampler is not None and is_constant(keyword(node, "shuffle"), True) and _is_sampler(sampler, file):
                yield self.local(
                    file,
                    node,
                    "the loader is given a sampler and shuffle=True as well",
                    cluster=_REFUSED[0],
                    advice=_REFUSED[1],
                )
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
                f"nothing reads {name}: the loader goes through all of the data",
                cluster=_UNUSED[0],
                advice=_UNUSED[1],
            )


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
    loads = any(isinstance(at, ast.Call) and name_of(at, file) in LOADERS for at in nodes)
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
