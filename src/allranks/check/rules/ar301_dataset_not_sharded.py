"""AR301: a model for several processes, and a loader that gives each of them the whole data set."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.nodes import walk
from allranks.check.origins import values
from allranks.check.rule import Example, LocalRule
from allranks.check.source import File
from allranks.check.syntax import (
    bases_of,
    function_of,
    has_stars,
    is_called,
    is_constant,
    keyword,
    name_of,
    own,
    speaks_of,
    tail_of,
)
from allranks.check.tables.data import HELD_OUT, LOADERS
from allranks.findings import Finding

_WRAPPERS = ("torch.nn.parallel.DistributedDataParallel", "torch.distributed.fsdp.FullyShardedDataParallel")
# Somebody in this file thinks about who reads what.
_SPLITS = re.compile(
    r"Sampler|split_dataset|\.shard\(|num_shards|num_replicas|worker_info|\[\s*(self\.)?\w*rank\s*::|prepare_data_loader|"
    r"accelerat|lightning|deepspeed|webdataset|StreamingDataset|process_index|\bsplit_by_"
)
_TRAINS = re.compile(r"(^|_)train")
_PREPARES = ("prepare", "setup", "setup_dataloaders", "prepare_data_loader", "_setup_dataloaders", "setup_dataloader")
_LOOKS_AT = ("len", "enumerate", "tqdm", "iter", "print", "ceil", "progress_bar")


class DatasetNotSharded(LocalRule):
    """
    ## What it does
    Finds a `DataLoader(..., shuffle=True)` (or one of training data in its own order) without a sampler, or one of an
    `IterableDataset`, in a file that wraps its model for several processes and in which nothing splits the data among
    them. With Accelerate and Fabric: a shuffling loader that a function goes over and never prepares, while it prepares
    its model.

    ## Why is this bad
    Every process goes through the whole data set in an epoch.

    ## What happens with N processes
    An epoch costs N times what it should. With equal seeds, all ranks compute the same gradients and N - 1 of N
    devices work for nothing.

    ## Known problems
    A data set that splits itself by rank, in another file, is not seen from here.

    No fault of this kind has been seen in real code yet; without a sampler each process reads everything, whatever
    else the program does.

    ## Use instead
    `sampler=DistributedSampler(dataset)` with `set_epoch`, or `allranks.Dataset`.
    """

    code, name, severity, row = "AR301", "dataset-not-sharded", "error", "data"
    cluster = "Every process goes through the whole data set: N processes do the work of one."
    advice = "Give the loader sampler=DistributedSampler(dataset), and call set_epoch in the loop."
    words = ("DistributedDataParallel", "FullyShardedDataParallel", "Accelerator(", "Fabric(")
    nodes = (ast.Call,)
    calls = LOADERS
    bad = (
        Example(
            {
                "train.py": """\
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader


def train(model, dataset):
    model = DDP(model)
    loader = DataLoader(dataset, batch_size=32, shuffle=True)
"""
            },
            at=(7,),
        ),
        Example(
            {
                "train.py": """\
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Lines(IterableDataset):
    def __iter__(self):
        yield from open("train.txt")


def train(model):
    model = DDP(model)
    lines = Lines()
    return DataLoader(lines, batch_size=32)
"""
            },
            at=(13,),
        ),
        Example(
            {
                "train.py": """\
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader


def train(model, train_set, val_set):
    model = DDP(model)
    train_loader = DataLoader(train_set, batch_size=32, num_workers=4)
    val_loader = DataLoader(val_set, batch_size=32)
"""
            },
            at=(7,),
        ),
        Example(
            {
                "train.py": """\
from accelerate import Accelerator
from torch.utils.data import DataLoader


def train(model, optimizer, rows):
    accelerator = Accelerator()
    loader = DataLoader(rows, batch_size=32, shuffle=True)
    model, optimizer = accelerator.prepare(model, optimizer)
    for batch in loader:
        accelerator.backward(model(batch))
"""
            },
            at=(7,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
from accelerate import Accelerator
from torch.utils.data import DataLoader


def train(model, optimizer, rows, val):
    accelerator = Accelerator()
    loader = DataLoader(rows, batch_size=32, shuffle=True)
    val_loader = DataLoader(val, batch_size=32, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(batch))
    for batch in val_loader:
        model(batch)
"""
            }
        ),
        Example(
            {
                "train.py": """\
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def train(model, dataset):
    model = DDP(model)
    loader = DataLoader(dataset, batch_size=32, sampler=DistributedSampler(dataset))
"""
            }
        ),
        Example(
            {
                "train.py": """\
from torch.utils.data import DataLoader


def train(model, dataset):
    loader = DataLoader(dataset, batch_size=32, shuffle=True)
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or name_of(node, file) not in LOADERS or has_stars(node):
            return
        if is_called(node, HELD_OUT, file):
            return
        shuffles = is_constant(keyword(node, "shuffle"), True)
        if shuffles and _is_left_unprepared(node, file):
            yield self.local(file, node, "every process goes over the whole data set: this loader is never prepared")
        if _SPLITS.search(file.text) or not (shuffles or _is_stream(node, file) or _trains_in_order(node, file)):
            return
        if any(isinstance(at, ast.Call) and name_of(at, file) in _WRAPPERS for at in file.nodes):
            yield self.local(
                file, node, "every process loads the whole data set: the loader has no distributed sampler"
            )


def _trains_in_order(loader: ast.Call, file: File) -> bool:
    """A loader of training data without an order of its own."""
    if any(keyword(loader, name) is not None for name in ("shuffle", "sampler", "batch_sampler")) or not loader.args:
        return False
    above = next(file.parents(loader), None)
    return isinstance(above, ast.Assign) and any(speaks_of(t, _TRAINS) for t in (*above.targets, loader.args[0]))


def _is_left_unprepared(loader: ast.Call, file: File) -> bool:
    """A function prepares its model, and goes over this loader as it is."""
    above, function = next(file.parents(loader), None), function_of(loader, file)
    if function is None or not isinstance(above, ast.Assign) or not isinstance(above.targets[0], ast.Name):
        return False
    name, nodes = above.targets[0].id, list(own(function))
    prepared = [at for at in nodes if isinstance(at, ast.Call) and tail_of(at) in _PREPARES]
    models = any(tail_of(at) in ("prepare", "setup") and at.args and not _names(at, name) for at in prepared)
    loops = (at.iter for at in nodes if isinstance(at, ast.For | ast.AsyncFor))
    gone_over = any(_is_over(loop, name) for loop in loops)
    handed_on = any(
        isinstance(at, ast.Call) and _names(at, name) and tail_of(at) not in _LOOKS_AT and at not in prepared
        for at in nodes
    )
    return models and gone_over and not handed_on and not any(_names(at, name) for at in prepared)


def _names(call: ast.Call, name: str) -> bool:
    parts = (*call.args, *(k.value for k in call.keywords))
    return any(isinstance(at, ast.Name) and at.id == name for part in parts for at in walk(part))


def _is_over(source: ast.expr, name: str) -> bool:
    """``loader``, ``enumerate(loader)``, ``tqdm(loader)``."""
    while isinstance(source, ast.Call) and source.args:
        source = source.args[0]
    return isinstance(source, ast.Name) and source.id == name


def _is_stream(loader: ast.Call, file: File) -> bool:
    """The data is an instance of an iterable data set of this file."""
    made = [loader.args[0], *values(loader.args[0], file)] if loader.args else []
    names = {tail_of(one) for one in made if isinstance(one, ast.Call)}
    classes = (n for n in file.nodes if isinstance(n, ast.ClassDef) and n.name in names)
    return any(base.endswith("IterableDataset") for owner in classes for base in bases_of(owner, file))
