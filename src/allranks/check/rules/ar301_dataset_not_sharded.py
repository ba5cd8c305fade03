"""AR301: every process reads the whole data set."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.knowledge.tables import load
from allranks.check.program import Program
from allranks.check.rule import LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.origins import RANK_KINDS, origins, reached
from allranks.check.tree.shares import ordered_without_rank, unshared
from allranks.check.tree.syntax import (
    asks_rank,
    bases_of,
    class_of,
    function_of,
    given,
    has_stars,
    is_constant,
    keyword,
    name_of,
    own,
    rank_guard,
    tail_of,
)
from allranks.check.tree.words import mentions, says
from allranks.findings import Finding, Note

_WHOLE = "every process loads the whole data set: the loader has no distributed sampler"
_BY_WORKER = "the data is split among the workers of a loader, and every process reads all of it"
_BLIND = "this orders data for one of several processes, and its rank decides nothing: all of them read the same rows"
_DIVIDES = RANK_KINDS | {"size"}
_STREAM = "Divide by rank first, then by worker: worker + rank * workers, of world * workers parts."
_ALL_RECORDS = "grain gives all records to every process"
_BY_RANK = "Let the rank decide which rows of the order are read: order[rank::world]."
_WRAPS = ("DistributedDataParallel", "FullyShardedDataParallel", "fully_shard", "DistributedOptimizer")
# A program that says one of these has thought about who reads what, or leaves it to a library.
_SPLITS = (
    *("DistributedSampler", "DistributedBatchSampler", "split_dataset", ".shard(", "num_replicas", "rank::"),
    *("prepare_data_loader", "ccelerat", "lightning", "deepspeed", "webdataset", "process_index", "rank ::"),
)


class DatasetNotSharded(LocalRule):
    """
    ## What it does
    Finds a `DataLoader` that shuffles training data without a sampler, in a program that wraps its model for several
    processes, and in which nothing divides data. If the program divides data, a loader that is left out is found:

    - its sampler is made and not passed
    - it is not prepared as others are
    - its batch size is the share of one process, and its data is not

    Also a stream that is divided among the workers of a loader (`get_worker_info`), and not among the processes; and a
    reader that shuffles for one of several processes, and never uses its rank; and `grain.NoSharding()`.

    ## Why is this bad
    Every process reads the whole data set in an epoch.

    ## What happens with N processes
    An epoch costs N times as much as needed. With equal seeds, all ranks compute the same gradients, and N - 1 of N
    devices work for nothing.

    ## Known problems
    A program that divides any data is taken to divide all of it.

    ## Use instead
    `sampler=DistributedSampler(dataset)` with `set_epoch`. For an `IterableDataset`, which takes no sampler: the part
    of each process and worker in `__iter__`. Or `allranks.Dataset`.
    """

    code, name, severity, row = "AR301", "dataset-not-sharded", "error", "data"
    cluster = "Every process reads the whole data set: N processes do the work of one."
    advice = "Give the loader sampler=DistributedSampler(dataset), and call set_epoch in the loop."
    words = ("DataLoader", "get_worker_info", "NoSharding", "permutation", "randperm", "shuffle")
    nodes = (ast.Call, ast.ClassDef, ast.FunctionDef)
    calls = (*load().signs["loaders"], "get_worker_info", "NoSharding")
    bad = (
        """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

dist.init_process_group("nccl")
model = DistributedDataParallel(torch.nn.Linear(2, 2))
for batch in DataLoader([], batch_size=8, shuffle=True):  # <-- found
    model(batch).sum().backward()
""",
    )
    good = (
        """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("nccl")
model = DistributedDataParallel(torch.nn.Linear(2, 2))
for batch in DataLoader([], batch_size=8, sampler=DistributedSampler([])):
    model(batch).sum().backward()
for batch in DataLoader([], batch_size=8):
    model(batch)
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.ClassDef) or (isinstance(node, ast.FunctionDef) and class_of(node, file) is None):
            if where := ordered_without_rank(node, file):
                notes = [Note("these are read", file.place(at)) for at in where[1:]]
                yield self.finding(file.place(where[0]), file.symbol(where[0]), _BLIND, advice=_BY_RANK, notes=notes)
            return
        if isinstance(node, ast.Call) and tail_of(node) == "NoSharding":
            function = function_of(node, file)
            if function is None or not says(function.name, "held_out"):
                yield self.local(file, node, _ALL_RECORDS, advice="Pass grain.ShardByJaxProcess().")
            return
        if isinstance(node, ast.Call) and tail_of(node) == "get_worker_info":
            if _is_split_by_worker_only(node, file):
                yield self.local(file, node, _BY_WORKER, advice=_STREAM)
            return
        if (
            not isinstance(node, ast.Call)
            or name_of(node, file) not in load().signs["loaders"]
            or has_stars(node)
            or not node.args
        ):
            return
        sampler = keyword(node, "sampler")
        whole = sampler is None or tail_of(sampler) in ("RandomSampler", "SubsetRandomSampler")
        batched = keyword(node, "batch_sampler") is not None or is_constant(keyword(node, "batch_size"), None)
        if not whole or batched or len(node.args) > 3 or any(map(asks_rank, reached(node.args[0], file))):
            return
        above = next(file.parents(node), None)
        named = [node.args[0], *(above.targets if isinstance(above, ast.Assign) else ())]
        shuffle = given(node, 2, "shuffle")
        trains = shuffle is None and any(mentions(one, "trains") for one in named)
        if (
            not (is_constant(shuffle, True) or trains or mentions(shuffle, "trains"))
            or rank_guard(node, file) is not None
        ):
            return
        function = function_of(node, file)
        looks = says(file.path, "one_process") or (function is not None and says(function.name, "held_out"))
        if any(mentions(one, "held_out") for one in named) or looks:
            return
        what = unshared(node, file) or ("" if file.says(*_SPLITS) else _WHOLE)
        if what:
            yield self.local(file, node, what)

    def confirm(self, finding: Finding, program: Program) -> bool:
        """Whether its program wraps the model for several processes, learns, and divides no data."""
        path, facts = finding.place.path, program.facts
        if finding.message == _BY_WORKER:
            led = facts.says(path, *_WRAPS, "pl.Trainer", "L.Trainer")
            return led and not facts.says(path, "Accelerator(", "split_dataset", "webdataset")
        if finding.message == _ALL_RECORDS:
            return facts.says(path, "process_index", "process_count", "jax.distributed")
        if finding.message != _WHOLE:
            return True
        return facts.says(path, *_WRAPS) and not facts.says(path, *_SPLITS)


def _is_split_by_worker_only(asks: ast.Call, file: File) -> bool:
    """Whether a data set asks for the worker of its loader, and nowhere for the rank."""
    owner, function = class_of(asks, file), function_of(asks, file)
    if owner is None or function is None or not any(base.endswith("IterableDataset") for base in bases_of(owner, file)):
        return False
    cuts = [at for at in own(function) if _is_cut_by_worker(at, file)]
    return bool(cuts) and not any(origins(at, file) & _DIVIDES for at in cuts)


def _is_cut_by_worker(cut: ast.AST, file: File) -> bool:
    """``files[info.id :: info.num_workers]``, ``k % info.num_workers == info.id``"""
    part = cut.slice if isinstance(cut, ast.Subscript) else None
    count = part.step if isinstance(part, ast.Slice) and part.lower is not None else None
    if isinstance(cut, ast.Compare) and isinstance(cut.left, ast.BinOp) and isinstance(cut.left.op, ast.Mod):
        count = cut.left.right
    found = reached(count, file) if count is not None else ()
    return any(isinstance(at, ast.Attribute) and at.attr == "num_workers" for at in found)
