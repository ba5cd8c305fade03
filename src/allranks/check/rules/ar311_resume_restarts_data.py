"""AR311: a run that resumes in the middle of an epoch begins its data again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import values
from allranks.check.tree.syntax import own, speaks_of
from allranks.findings import Finding

_STEP = re.compile(r"^(global_?|train_?|current_?)?(step|steps|iter|iteration|iter_num|global_step|num_steps)$")
_LOADER = re.compile(r"(loader|train_data|batches|train_iter|data_iter|train_ds|dataset)$", re.IGNORECASE)
# Somebody in this file has thought of where the data goes on.
_THOUGHT = re.compile(
    r"skip|islice|fast_?forward|consumed|start_batch|resume_batch|resume_step|start_index|seek|Stateful|get_state|"
    r"data_state|loader_state|sampler_state|initial_step|initial_iter|already|offset|start_iter|step_in_epoch|get_batch",
    re.IGNORECASE,
)


class ResumeRestartsData(LocalRule):
    """
    ## What it does
    Finds a function that takes the step from a checkpoint, saves by step within a loop over a loader, and begins that
    loop at its first batch.

    ## Why is this bad
    The step continues, and the data begins again.

    ## What happens with N processes
    After each restart the first batches of the epoch are trained on again. If the job is restarted more often than an
    epoch is long, the last batches are never read. All processes do it alike, so nothing fails.

    ## Known problems
    Data that is drawn at random without epochs loses nothing. If a loader is made in another file, the rule does not
    see whether it stores its position. Therefore the rule is off until it is selected.

    ## Use instead
    Save the position of the data with the step and skip to it (`accelerate.skip_first_batches`, a stateful loader,
    `allranks.Dataset`).

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row, default = "AR311", "resume-restarts-data", "warning", "data", False
    cluster = (
        "After a restart every process reads the first batches of the epoch again; the last ones may never be read."
    )
    advice = "Save the position in the data together with the step, and skip to it after a resume."
    words = ("step", "iter")
    nodes = (ast.For,)
    bad = (
        Example(
            {
                "train.py": """\
import torch


def train(model, loader, epochs):
    state = torch.load("last.pt")
    step = state["step"]
    for epoch in range(epochs):
        for x, y in loader:
            model(x, y)
            step += 1
            if step % 100 == 0:
                torch.save({"step": step}, "last.pt")
"""
            },
            at=(8,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import torch
from itertools import islice


def train(model, loader, epochs):
    state = torch.load("last.pt")
    step = state["step"]
    for x, y in islice(loader, step, None):
        model(x, y)
        step += 1
        if step % 100 == 0:
            torch.save({"step": step}, "last.pt")
"""
            }
        ),
        Example(
            {
                "train.py": """\
import torch


def train(model, loader, epochs):
    state = torch.load("last.pt")
    for epoch in range(state["epoch"], epochs):
        for x, y in loader:
            model(x, y)
        torch.save({"epoch": epoch}, "last.pt")
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.For) or not _is_loader(node.iter):
            return
        counters = sorted({name for test in _saving_tests(node) for name in _resumed(test, file)})
        if counters and not speaks_of(file.tree, _THOUGHT):
            message = f"{counters[0]} continues from the checkpoint, and the data starts again from the beginning"
            yield self.local(file, node.iter, message)


def _is_loader(source: ast.expr) -> bool:
    while isinstance(source, ast.Call) and source.args:  # enumerate(tqdm(loader))
        source = source.args[0]
    name = source.attr if isinstance(source, ast.Attribute) else source.id if isinstance(source, ast.Name) else ""
    return bool(_LOADER.search(name))


def _saving_tests(loop: ast.For) -> Iterator[ast.expr]:
    """Yield the tests of the loop under which a checkpoint is saved every so many steps."""
    for node in own(loop):
        periodic = isinstance(node, ast.If) and any(
            isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in walk(node.test)
        )
        if isinstance(node, ast.If) and periodic and any("save" in ast.unparse(s).lower() for s in node.body):
            yield node.test


def _resumed(test: ast.expr, file: File) -> Iterator[str]:
    """Yield the counters in ``test`` that are taken from something loaded: ``step = state["step"]``."""
    for node in walk(test):
        if any(_is_step(value) for value in values(node, file)):
            yield ast.unparse(node)


def _is_step(value: ast.expr) -> bool:
    return any(
        isinstance(n, ast.Subscript)
        and isinstance(n.slice, ast.Constant)
        and isinstance(n.slice.value, str)
        and bool(_STEP.match(n.slice.value))
        for n in walk(value)
    )
