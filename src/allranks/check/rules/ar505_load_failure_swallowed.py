"""AR505: a checkpoint that could not be loaded is passed over."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.syntax import (
    catches_all,
    distributed,
    leaves,
    name_of,
    own,
    raises,
    rank_guard,
    speaks_of,
    tail_of,
)
from allranks.findings import Finding

_LOADS = ("torch.load", "torch.distributed.checkpoint.load", "flax.training.checkpoints.restore_checkpoint")
_LOADERS = re.compile(
    r"^_?(load_state_dict|load_checkpoint|restore_checkpoint|resume_checkpoint|load_ckpt|load_state)$"
)
# State that a run can do without, if it must.
_BESIDE = re.compile(r"optim|ema|sched|scaler|rng|rerun|loader|dataset|teacher|embed", re.IGNORECASE)
_RETRIES = re.compile(r"load|restore|resume|retry|append")


class LoadFailureSwallowed(LocalRule):
    """
    ## What it does
    Finds a `try` around the loading of a checkpoint whose handler catches any exception and continues without it.

    ## Why is this bad
    The run should continue, and starts with random weights. The message in the log is easily overlooked.

    ## What happens with N processes
    Each process finds for itself whether it can read the file. One that cannot (a slow file system, no memory) trains
    random weights together with ranks that have loaded theirs. Or it waits in another step.

    ## Known problems
    An optional checkpoint (an optimizer's state after a change) is skipped on purpose. The rule is off until it is
    selected.

    ## Use instead
    Find out on rank 0 whether there is a checkpoint, broadcast that, and let a failure to load it end the job.
    """

    code, name, severity, row = "AR505", "load-failure-swallowed", "warning", "checkpoint load"
    default = False
    cluster = "A rank that fails to load trains random weights beside ranks that have loaded theirs."
    advice = "Let the failure end the job; decide on one rank, for all, whether there is a checkpoint to load."
    words = ("load", "restore")
    nodes = (ast.Try, ast.TryStar)
    bad = (
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist


def resume(model, path):
    try:
        model.load_state_dict(torch.load(path, map_location="cpu"))
    except Exception as error:
        print("starting from scratch", error)
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
import torch.distributed as dist


def resume(model, path):
    try:
        model.load_state_dict(torch.load(path, map_location="cpu"))
    except Exception as error:
        print("cannot load", path)
        raise


def tower(model, path):
    loaded = False
    try:
        model.load_state_dict(torch.load(path, map_location="cpu"))
        loaded = True
    except Exception as error:
        print("cannot load", error)
    return loaded


def either(model, path):
    try:
        model.load_state_dict(torch.load(path))
    except Exception:
        model.module.load_state_dict(torch.load(path))
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Try | ast.TryStar) or not distributed(file) or len(node.handlers) != 1:
            return
        handler = node.handlers[0]
        if not catches_all(handler) or raises(handler) or _goes_another_way(handler):
            return
        if any(_says_so(at) for s in node.body for at in [s, *own(s)]):
            return  # whether it was loaded can be asked for
        if any(_is_load(at, file) for s in node.body[:4] for at in [s, *own(s)]):
            yield self.local(file, handler, "a checkpoint that cannot be loaded is ignored, by each rank for itself")


def _says_so(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is True


def _is_load(node: ast.AST, file: File) -> bool:
    if not isinstance(node, ast.Call) or speaks_of(node, _BESIDE) or rank_guard(node, file) is not None:
        return False
    return name_of(node, file) in _LOADS or bool(_LOADERS.search(tail_of(node)))


def _goes_another_way(handler: ast.ExceptHandler) -> bool:
    """The handler loads in another way, or hands the failure to the caller."""
    if any(isinstance(at, ast.Call) and _RETRIES.search(tail_of(at)) for s in handler.body for at in [s, *own(s)]):
        return True
    return any(isinstance(at, ast.Return | ast.Continue) for at in own(handler)) and leaves(handler.body)
