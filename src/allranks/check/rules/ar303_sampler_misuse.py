"""AR303: a distributed sampler that is told a wrong rank or world, or that is there twice."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.source import File
from allranks.check.syntax import function_of, given, name_of, own, tail_of, words_of
from allranks.findings import Finding

_SAMPLER = "torch.utils.data.DistributedSampler"
_LOCAL = re.compile(r"^(args\.|self\.)?_?(local_rank|LOCAL_RANK|local_process_index)$")


class SamplerMisuse(LocalRule):
    """
    ## What it does
    Finds a `DistributedSampler` whose `rank` is the local rank or whose `num_replicas` is the number of GPUs of this
    host.

    ## Why is this bad
    Both are right on one host, and wrong on two.

    ## What happens with N processes
    The hosts read the same part of the data: with two hosts each sample is seen twice an epoch and counted as two.

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
    calls = (_SAMPLER,)
    bad = (
        Example(
            {
                "train.py": """\
import torch
from torch.utils.data import DistributedSampler


def make(data, local_rank):
    return DistributedSampler(data, num_replicas=8, rank=local_rank)
"""
            },
            at=(6,),
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
from torch.utils.data import DistributedSampler


def make(data, rank):
    DistributedSampler(data)
    return DistributedSampler(data, num_replicas=dist.get_world_size(), rank=rank)
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or name_of(node, file) != _SAMPLER:
            return
        rank, size = given(node, 2, "rank"), given(node, 1, "num_replicas")
        if rank is not None and _is_local(rank):
            yield self.local(file, node, f"the sampler's rank is {ast.unparse(rank)}, which is equal on every host")
        elif size is not None and _counts_gpus(size, file):
            yield self.local(
                file, node, f"the sampler's num_replicas, {ast.unparse(size)}, counts the GPUs of one host"
            )


def _is_local(rank: ast.expr) -> bool:
    plain = rank.args[0] if isinstance(rank, ast.Call) and tail_of(rank) == "int" and rank.args else rank
    return any(_LOCAL.search(word) for word in words_of(plain))


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
