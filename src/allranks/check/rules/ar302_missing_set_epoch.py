"""AR302: a shuffling DistributedSampler whose epoch is never set."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.nodes import walk
from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.source import File
from allranks.check.syntax import (
    class_of,
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

_SAMPLER = "torch.utils.data.DistributedSampler"
_TRAINS = re.compile(r"(^|_)train", re.IGNORECASE)
_EPOCH = re.compile(r"epoch", re.IGNORECASE)
# They call set_epoch themselves.
_SETTING = frozenset({"lightning", "accelerate", "composer", "transformers", "ray", "mmengine", "mmcv", "catalyst"})
_FRAMEWORKS = re.compile(r"^\s*(import|from)\s+(lightning|pytorch_lightning|accelerate|composer)\b", re.MULTILINE)


class MissingSetEpoch(LocalRule, ProgramRule):
    """
    ## What it does
    Finds a `DistributedSampler` that shuffles, in a file with a loop over epochs and without any `set_epoch`; and one
    that is made in another file than the program's, where nothing that the program or a user of that file imports
    calls `set_epoch`, though it counts epochs.

    ## Why is this bad
    The order is drawn from seed + epoch. Without `set_epoch` the epoch stays 0.

    ## What happens with N processes
    Every epoch has the same order, and each rank sees the same part of the data for ever. There is no error; the model
    is worse.

    ## Known problems
    What a program imports counts as its own: a `set_epoch` there that it never calls hides the fault. Who makes one
    epoch loses nothing.

    ## Use instead
    `sampler.set_epoch(epoch)` at the start of each epoch.
    """

    code, name, severity, row = "AR302", "missing-set-epoch", "warning", "data"
    cluster = "Every epoch has the same order, and each rank sees the same part of the data for ever."
    advice = "Call sampler.set_epoch(epoch) at the start of each epoch."
    words = ("DistributedSampler",)
    nodes = (ast.Call,)
    calls = (_SAMPLER,)
    bad = (
        Example(
            {
                "train.py": """\
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def train(dataset, step):
    loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
    for epoch in range(10):
        for batch in loader:
            step(batch)
"""
            },
            at=(6,),
        ),
        Example(
            {
                "data.py": """\
from torch.utils.data import DataLoader, DistributedSampler

def loader(rows):
    return DataLoader(rows, sampler=DistributedSampler(rows))
""",
                "train.py": """\
import torch.distributed as dist
from data import loader

dist.init_process_group("nccl")
for epoch in range(3):
    for batch in loader([]):
        print(epoch, batch)
""",
            },
            at=(4,),
        ),
        # A setting says that it shuffles; another program of the project sets the epoch of its own sampler.
        Example(
            {
                "train.py": """\
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def main(options, data):
    training_sampler = DistributedSampler(data, shuffle=options["shuffle"], drop_last=True)
    loader = DataLoader(data, sampler=training_sampler)
    for epoch in range(options["epochs"]):
        for batch in loader:
            print(epoch, batch)
"""
            },
            at=(6,),
        ),
        Example(
            {
                "data.py": """\
from torch.utils.data import DataLoader, DistributedSampler

def loader(rows):
    return DataLoader(rows, sampler=DistributedSampler(rows))
""",
                "train.py": """\
import torch.distributed as dist
from data import loader

dist.init_process_group("nccl")
for epoch in range(3):
    for batch in loader([]):
        print(epoch, batch)
""",
                "finetune.py": """\
from torch.utils.data import DistributedSampler

sampler = DistributedSampler([])
for epoch in range(3):
    sampler.set_epoch(epoch)
""",
            },
            at=(4,),
        ),
    )
    good = (
        # The loop stands in the class that it inherits from.
        Example(
            {
                "pretrain.py": """\
from base import Base
from torch.utils.data import DataLoader, DistributedSampler


class Pretrain(Base):
    def make_loader(self, rows):
        sampler = DistributedSampler(rows)
        return DataLoader(rows, sampler=sampler)

    def report(self):
        for epoch in range(self.epochs):
            print(epoch)
""",
                "base.py": """\
class Base:
    def fit(self, rows):
        loader = self.make_loader(rows)
        for epoch in range(3):
            loader.sampler.set_epoch(epoch)
""",
            }
        ),
        Example(
            {
                "train.py": """\
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def train(dataset, step):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, sampler=sampler)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for batch in loader:
            step(batch)
"""
            }
        ),
        Example(
            {
                "train.py": """\
from torch.utils.data import DataLoader, DistributedSampler


def train(test_set, train_set):
    test = DataLoader(test_set, sampler=DistributedSampler(test_set))
    train = DataLoader(train_set, sampler=DistributedSampler(train_set, shuffle=False))
    for epoch in range(10):
        yield from train
        yield from test
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or name_of(node, file) != _SAMPLER or has_stars(node):
            return
        if "set_epoch" in file.text or _FRAMEWORKS.search(file.text):
            return
        shuffle = keyword(node, "shuffle")
        shuffles = shuffle is None or is_constant(shuffle, True) or _is_set_for_training(node, shuffle, file)
        if not shuffles or _is_held_out(node, file) or _inherits(node, file):
            return
        if not _is_handed_on(node, file) and any(_is_epoch_loop(at) for at in file.nodes):
            yield self.local(file, node, "this sampler shuffles, and set_epoch is never called")

    def stands(self, finding: Finding, program: Program) -> bool:
        """Whether nothing else of its program calls ``set_epoch``."""
        _, names = program.around.get(finding.place, (frozenset(), frozenset()))
        return "set_epoch" not in names

    def check(self, program: Program) -> Iterator[Finding]:
        """Look at samplers that one file makes and another one uses."""
        for event in program.calls(_SAMPLER):
            packages, names = program.around.get(event.place, (program.packages, program.names))
            epochs = [name for name in names if "epoch" in name.lower()]
            if "set_epoch" in epochs or not epochs or packages & _SETTING:
                continue
            shuffle = event.argument(3, "shuffle")
            shuffled = shuffle is None or shuffle.constant is True
            elsewhere = event.chain and event.chain[0].place.path != event.place.path
            held_out = any(map(HELD_OUT.search, (event.symbol, *(step.symbol for step in event.chain))))
            if event.active and shuffled and elsewhere and not held_out:
                yield self.found(event, "this sampler shuffles, and set_epoch is never called")


def _is_epoch_loop(node: ast.AST) -> bool:
    if isinstance(node, ast.AugAssign):  # self.epochs += 1
        return isinstance(node.op, ast.Add) and speaks_of(node.target, _EPOCH)
    return isinstance(node, ast.For) and (speaks_of(node.target, _EPOCH) or speaks_of(node.iter, _EPOCH))


def _is_set_for_training(call: ast.Call, shuffle: ast.expr, file: File) -> bool:
    """A setting says whether it shuffles: for training, it does."""
    return not isinstance(shuffle, ast.Constant | ast.UnaryOp) and is_called(call, _TRAINS, file)


def _inherits(call: ast.Call, file: File) -> bool:
    """It is made in a class whose loop over epochs may stand in a class of another file."""
    owner, function = class_of(call, file), function_of(call, file)
    if owner is None or function is None or any(_is_epoch_loop(at) for at in own(function)):
        return False
    here = {at.name for at in file.nodes if isinstance(at, ast.ClassDef)}
    outside = [base for base in owner.bases if tail_of(base) not in (*here, "object", "Module", "ABC")]
    return bool(outside)


def _is_held_out(call: ast.Call, file: File) -> bool:
    """Data that is only looked at: its order does not matter."""
    function = function_of(call, file)
    return is_called(call, HELD_OUT, file) or (function is not None and bool(HELD_OUT.search(function.name)))


def _is_handed_on(call: ast.Call, file: File) -> bool:
    """The sampler goes to a function, or is kept in an object: its epoch may be set there."""
    above = next((p for p in file.parents(call) if isinstance(p, ast.stmt)), None)
    if not isinstance(above, ast.Assign | ast.Return) or above.value is not call:
        return False
    if isinstance(above, ast.Return):
        return True
    names = {at.id for target in above.targets for at in walk(target) if isinstance(at, ast.Name)}
    return any(
        isinstance(at, ast.Call)
        and name_of(at, file) not in LOADERS
        and tail_of(at) != "BatchSampler"
        and any(isinstance(a, ast.Name) and a.id in names for a in [*at.args, *(k.value for k in at.keywords)])
        for at in file.nodes
    )
