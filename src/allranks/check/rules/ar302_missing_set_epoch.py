"""AR302: a shuffling DistributedSampler whose epoch is never set."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.program import Program
from allranks.check.rule import LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.syntax import function_of, given, has_stars, is_constant, name_of
from allranks.check.tree.words import mentions, says
from allranks.findings import Finding

SAMPLERS = ("torch.utils.data.DistributedSampler", "torchdata.stateful_dataloader.sampler.StatefulDistributedSampler")
_LEARNS = ("backward(", "zero_grad", "value_and_grad")
# They call set_epoch themselves.
_LEADERS = (
    *("pl.Trainer", "LightningModule", "LightningDataModule", "Accelerator(", "Seq2SeqTrainer", "TrainingArguments"),
    *("Fabric(", "composer import Trainer", "ray.train", "from mmengine", "mmcv.runner"),
)


class MissingSetEpoch(LocalRule):
    """
    ## What it does
    Finds a shuffling `DistributedSampler` in a program that trains in epochs and never calls `set_epoch`.

    ## Why is this bad
    The order is drawn from seed + epoch. Without `set_epoch` the epoch stays 0.

    ## What happens with N processes
    Every epoch has the same order, and each rank always reads the same part of the data. There is no error; the model
    is worse.

    ## Known problems
    A `set_epoch` anywhere in the code of the program hides the fault (in all files, where a registry makes objects by
    name). A program with one epoch loses nothing. If a setting decides whether the sampler shuffles, confidence is low.

    ## Use instead
    `sampler.set_epoch(epoch)` at the start of each epoch.
    """

    code, name, severity, row = "AR302", "missing-set-epoch", "warning", "data"
    cluster = "Every epoch has the same order, and each rank always reads the same part of the data."
    advice = "Call sampler.set_epoch(epoch) at the start of each epoch."
    words = ("DistributedSampler",)
    whole = True
    nodes = (ast.Call,)
    calls = SAMPLERS
    bad = (
        """\
# file: data.py
from torch.utils.data import DataLoader, DistributedSampler


def loader(rows):
    return DataLoader(rows, sampler=DistributedSampler(rows))  # <-- found
# file: train.py
import torch.distributed as dist
from data import loader

dist.init_process_group("nccl")
for epoch in range(3):
    for batch in loader([]):
        batch.loss().backward()
""",
    )
    good = (
        """\
from torch.utils.data import DataLoader, DistributedSampler


def train(train_set, test_set, model):
    sampler = DistributedSampler(train_set)
    test = DataLoader(test_set, sampler=DistributedSampler(test_set))
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for batch in DataLoader(train_set, sampler=sampler):
            model(batch).backward()
        model.score(test)
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test and not file.says("set_epoch")

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or name_of(node, file) not in SAMPLERS or has_stars(node):
            return
        shuffle = given(node, 3, "shuffle")
        if is_constant(shuffle, False) or _is_held_out(node, file):
            return
        found = self.local(file, node, "this sampler shuffles, and nothing in its program calls set_epoch")
        named = shuffle is not None and (
            mentions(shuffle, "trains") or any(mentions(a, "trains") for a in node.args[:1])
        )
        certain = shuffle is None or is_constant(shuffle, True) or named
        yield found if certain else replace(found, confidence="low")

    def confirm(self, finding: Finding, program: Program) -> bool:
        """Whether its program learns in epochs, and sets none."""
        path, facts = finding.place.path, program.facts
        if facts.says(path, "set_epoch(", "set_sampler_epoch", *_LEADERS):
            return False
        by_name = facts.says(path, ".build(", "import_module(", "instantiate(")
        if by_name and facts.anywhere(".set_epoch("):
            return False
        if facts.says(path, *_LEARNS):
            return facts.says(path, "epoch")
        return not facts.says(path, "__main__")  # what uses it is loaded by its name


def _is_held_out(sampler: ast.Call, file: File) -> bool:
    """Whether it is, by its names, for data that is only looked at, whose order does not matter."""
    function = function_of(sampler, file)
    if function is not None and says(function.name, "held_out") and not says(function.name, "trains"):
        return True
    above = next((at for at in file.parents(sampler) if isinstance(at, ast.Assign)), None)
    named = [*sampler.args[:1], *(above.targets if above is not None else ())]
    return any(mentions(one, "held_out") and not mentions(one, "trains") for one in named)
