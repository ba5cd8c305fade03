"""AR301: a model for several processes, and a loader that gives each of them the whole data set."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.origins import values
from allranks.check.rule import Example, LocalRule
from allranks.check.source import File
from allranks.check.syntax import bases_of, has_stars, is_constant, keyword, name_of, speaks_of, tail_of
from allranks.check.tables.data import LOADERS
from allranks.findings import Finding

_WRAPPERS = ("torch.nn.parallel.DistributedDataParallel", "torch.distributed.fsdp.FullyShardedDataParallel")
# Somebody in this file thinks about who reads what.
_SPLITS = re.compile(
    r"Sampler|split_dataset|\.shard\(|num_shards|num_replicas|worker_info|\[\s*(self\.)?\w*rank\s*::|prepare_data_loader|"
    r"accelerat|lightning|deepspeed|webdataset|StreamingDataset|process_index|\bsplit_by_"
)
_HELD_OUT = re.compile(r"(^|_)(val|valid|validation|eval|test|dev)", re.IGNORECASE)


class DatasetNotSharded(LocalRule):
    """
    ## What it does
    Finds a `DataLoader(..., shuffle=True)` without a sampler, or one of an `IterableDataset`, in a file that wraps its
    model for several processes and in which nothing splits the data among them.

    ## Why is this bad
    Every process goes through the whole data set in an epoch.

    ## What happens with N processes
    An epoch costs N times what it should. With equal seeds, all ranks compute the same gradients and N - 1 of N
    devices work for nothing.

    ## Known problems
    A data set that splits itself by rank, in another file, is not seen from here.

    ## Use instead
    `sampler=DistributedSampler(dataset)` with `set_epoch`, or `allranks.Dataset`.
    """

    code, name, severity, row = "AR301", "dataset-not-sharded", "error", "data"
    cluster = "Every process goes through the whole data set: N processes do the work of one."
    advice = "Give the loader sampler=DistributedSampler(dataset), and call set_epoch in the loop."
    words = ("DistributedDataParallel", "FullyShardedDataParallel")
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
    )
    good = (
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
        everything = is_constant(keyword(node, "shuffle"), True) or _is_stream(node, file)
        if not everything or _SPLITS.search(file.text):
            return
        if (node.args and speaks_of(node.args[0], _HELD_OUT)) or _is_held_out(node, file):
            return
        if any(isinstance(at, ast.Call) and name_of(at, file) in _WRAPPERS for at in file.nodes):
            yield self.local(
                file, node, "every process loads the whole data set: the loader has no distributed sampler"
            )


def _is_stream(loader: ast.Call, file: File) -> bool:
    """The data is an instance of an iterable data set of this file."""
    made = [loader.args[0], *values(loader.args[0], file)] if loader.args else []
    names = {tail_of(one) for one in made if isinstance(one, ast.Call)}
    classes = (n for n in file.nodes if isinstance(n, ast.ClassDef) and n.name in names)
    return any(base.endswith("IterableDataset") for owner in classes for base in bases_of(owner, file))


def _is_held_out(call: ast.Call, file: File) -> bool:
    above = next((p for p in file.parents(call) if isinstance(p, ast.Assign)), None)
    return above is not None and any(speaks_of(target, _HELD_OUT) for target in above.targets)
