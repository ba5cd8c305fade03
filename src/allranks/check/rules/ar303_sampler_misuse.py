"""AR303: a sampler with a number of ranks that is not that of the job, or in a loader that cannot use it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.knowledge.tables import load
from allranks.check.program import Program
from allranks.check.rule import LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.origins import origins, reached, values
from allranks.check.tree.syntax import given, is_constant, keyword, name_of
from allranks.findings import Finding

_SAMPLER = "torch.utils.data.DistributedSampler"
# Call -> the numbers of ranks and the rank that it takes.
_PLACES = {
    _SAMPLER: ((1, "num_replicas"), (2, "rank")),
    "datasets.distributed.split_dataset_by_node": ((2, "world_size"), (1, "rank")),
}
_ALL = "Omit shuffle=True: the sampler shuffles."


class SamplerMisuse(LocalRule):
    """
    ## What it does
    Finds a `DistributedSampler` or `split_dataset_by_node` with wrong numbers: the number of GPUs of this host as
    `num_replicas`, rank and number swapped, or one of them of a group and the other of all processes. Also a loader
    with a sampler and `shuffle=True`, or with a `DistributedSampler` as `batch_sampler`. (A sampler that no loader gets
    is AR301.)

    ## Why is this bad
    The number of GPUs of a host is right on one host, and wrong on two.

    ## What happens with N processes
    The hosts read the same part of the data. A loader with a sampler and `shuffle=True`, or with one as batch sampler,
    raises on all ranks.

    ## Known problems
    A program that is only intended for one host is reported, too. The local rank as `rank` is AR306.

    ## Use instead
    Omit `rank` and `num_replicas`: the sampler takes them from torch.distributed.
    """

    code, name, severity, row = "AR303", "sampler-misuse", "error", "data"
    cluster = "Every host reads the same part of the data."
    advice = "Omit rank and num_replicas, or pass dist.get_rank() and dist.get_world_size()."
    words = ("DistributedSampler", "split_dataset_by_node")
    nodes = (ast.Call,)
    calls = (*load().signs["loaders"], *_PLACES)
    bad = (
        """\
import torch
from torch.utils.data import DataLoader, DistributedSampler

rows = []
sampler = DistributedSampler(rows, num_replicas=torch.cuda.device_count())  # <-- found
loader = DataLoader(rows, sampler=sampler, shuffle=True)  # <-- found
""",
    )
    good = (
        """\
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

rows = []
sampler = DistributedSampler(rows, dist.get_world_size(), dist.get_rank())
loader = DataLoader(rows, sampler=sampler)
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call):
            return
        if name_of(node, file) in load().signs["loaders"]:
            if is_constant(keyword(node, "shuffle"), True) and _is_sampler(keyword(node, "sampler"), file):
                yield self.local(file, node, "the loader gets a sampler and shuffle=True", cluster=_RAISES, advice=_ALL)
            elif _is_sampler(keyword(node, "batch_sampler"), file):
                what = "a DistributedSampler yields single indices, and the loader expects batches of indices"
                yield self.local(file, node, what, cluster=_RAISES, advice="Pass it as sampler=, with a batch_size.")
            return
        if (places := _PLACES.get(name_of(node, file))) is None:
            return
        size, rank = (given(node, *place) for place in places)
        counts, number = origins(size, file), origins(rank, file)
        if size is not None and any("device_count" in ast.unparse(one) for one in reached(size, file)):
            yield self.local(
                file, node, f"the sampler's num_replicas, {ast.unparse(size)}, counts the GPUs of one host"
            )
        elif number == {"size"} and counts and counts <= {"global", "local"}:
            yield self.local(file, node, "the rank and the number of ranks are swapped")
        elif number == {"group"} and counts == {"size"} and size is not None and "group" not in ast.unparse(size):
            yield self.local(file, node, "the rank is that in a group, and the number of ranks that of all processes")

    def confirm(self, finding: Finding, program: Program) -> bool:
        """Whether its program may run on several hosts, where that matters."""
        return finding.cluster == _RAISES or not program.facts.one_host


_RAISES = "DataLoader raises a ValueError on every rank."


def _is_sampler(given_one: ast.expr | None, file: File) -> bool:
    made = (values(given_one, file) or [given_one]) if given_one is not None else []
    return bool(made) and all(isinstance(one, ast.Call) and name_of(one, file) == _SAMPLER for one in made)
