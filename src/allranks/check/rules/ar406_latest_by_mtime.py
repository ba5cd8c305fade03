"""AR406: the newest checkpoint is found by the times of files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.syntax import function_of, keyword, rank_guard, speaks_of, tail_of
from allranks.findings import Finding

_TIMES = re.compile(r"^(getmtime|getctime|st_mtime|st_ctime|st_mtime_ns)$")
_CHECKPOINT = re.compile(r"ckpt|checkpoint|snapshot|resume|\.pth?$|\.safetensors$", re.IGNORECASE)
_REMOVES = re.compile(r"^(remove|unlink|rmtree|rotate|_rotate_checkpoints|prune|clean\w*)$")


class LatestByMtime(LocalRule):
    """
    ## What it does
    Finds `max(files, key=os.path.getmtime)` (or `sorted`) over checkpoints.

    ## Why is this bad
    The newest file may be half written; a copy or a restore changes the times; each host sees its own.

    ## What happens with N processes
    The ranks need not find the same file: some resume from step 1000 and some from 900, and nothing says so.

    ## Known problems
    A choice that is made on one rank and told to all is reported if that is done in another function.

    ## Use instead
    The step in the name, of those that are complete, found on rank 0 and broadcast.
    `allranks.Checkpointer(...).restore(...)` does this.
    """

    code, name, severity, row = "AR406", "latest-by-mtime", "warning", "checkpoint load"
    cluster = "The ranks need not find the same file, and the newest one may be half written."
    advice = "Choose by the step, among complete checkpoints, on rank 0, and broadcast the choice."
    words = ("getmtime", "getctime", "st_mtime", "st_ctime")
    nodes = (ast.Call,)
    calls = ("max", "sorted")
    bad = (
        Example(
            {
                "train.py": """\
import glob
import os


def latest(folder):
    return max(glob.glob(folder + "/*.ckpt"), key=os.path.getmtime)
"""
            },
            at=(6,),
        ),
    )
    good = (
        Example(
            {
                "logs.py": """\
import glob
import os


def newest_log(folder):
    return max(glob.glob(folder + "/*.log"), key=os.path.getmtime)


def prune_checkpoints(folder):
    for path in sorted(glob.glob(folder + "/*.ckpt"), key=os.path.getmtime)[:-3]:
        os.remove(path)
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or not _takes_one(node, file):
            return
        key, scope = keyword(node, "key"), function_of(node, file)
        if key is None or not speaks_of(key, _TIMES) or rank_guard(node, file) is not None:
            return
        about = scope if scope is not None else node
        named = isinstance(scope, ast.FunctionDef) and bool(_CHECKPOINT.search(scope.name))
        if not named and not speaks_of(node, _CHECKPOINT):
            return
        if not any(isinstance(at, ast.Call) and _REMOVES.search(tail_of(at)) for at in walk(about)):
            yield self.local(file, node, "the newest checkpoint is chosen by the time of the file, on every rank")


def _takes_one(call: ast.Call, file: File) -> bool:
    """``max(...)``, or the first or last of ``sorted(...)``: an order alone may be for rotation or a list."""
    above = next(file.parents(call), None)
    indexed = isinstance(above, ast.Subscript) and not isinstance(above.slice, ast.Slice)
    return tail_of(call) == "max" or (tail_of(call) == "sorted" and indexed)
