"""AR311: a run that resumes in the middle of an epoch begins its data again."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import values
from allranks.check.tree.syntax import own
from allranks.check.tree.words import mentions, parts
from allranks.findings import Finding

# Somebody in this file has thought of where the data goes on.
_THOUGHT = (
    *("skip", "islice", "fast_forward", "consumed", "start_batch", "start_index", "seek", "Stateful", "get_state"),
    *("data_state", "loader_state", "sampler_state", "offset", "start_iter", "step_in_epoch", "get_batch", "initial_"),
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
    """

    code, name, severity, row, default = "AR311", "resume-restarts-data", "warning", "data", False
    cluster = (
        "After a restart every process reads the first batches of the epoch again; the last ones may never be read."
    )
    advice = "Save the position in the data together with the step, and skip to it after a resume."
    words = ("step", "iter")
    nodes = (ast.For,)
    bad = (
        """\
import torch


def train(model, loader, path):
    state = torch.load(path)
    step = state["step"]
    for batch in loader:  # <-- found
        model(batch).backward()
        step += 1
        if step % 1000 == 0:
            torch.save({"step": step}, path)
""",
    )
    good = (
        """\
import itertools
import torch


def train(model, loader, path):
    state = torch.load(path)
    step = state["step"]
    for batch in itertools.islice(loader, step, None):
        model(batch).backward()
        step += 1
        if step % 1000 == 0:
            torch.save({"step": step}, path)
""",
    )

    def applies(self, file: File) -> bool:
        return not file.says(*_THOUGHT)

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.For) or not (mentions(node.iter, "loader") or mentions(node.iter, "trains")):
            return
        for test in _saving_tests(node):
            for at in walk(test):
                if isinstance(at, ast.expr) and any(_is_step(value) for value in values(at, file)):
                    message = f"{ast.unparse(at)} continues from the checkpoint, and the data starts again"
                    yield self.local(file, node.iter, message)
                    return


def _saving_tests(loop: ast.For) -> Iterator[ast.expr]:
    """Yield the tests of the loop under which a checkpoint is saved every so many steps."""
    for at in own(loop):
        periodic = isinstance(at, ast.If) and any(
            isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in walk(at.test)
        )
        if isinstance(at, ast.If) and periodic and any("save" in ast.unparse(s).lower() for s in at.body):
            yield at.test


def _is_step(value: ast.expr) -> bool:
    """Whether it is a counter that was loaded: ``state["step"]``."""
    taken = (n.slice.value for n in walk(value) if isinstance(n, ast.Subscript) and isinstance(n.slice, ast.Constant))
    return any(
        isinstance(key, str) and not parts(key).isdisjoint({"step", "steps", "iter", "iteration"}) for key in taken
    )
