"""AR406: the newest checkpoint is found by the times of files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import function_called
from allranks.check.tree.syntax import calls_of, class_of, function_of, keyword, own, rank_guard, speaks_of, tail_of
from allranks.findings import Finding

_TIMES = re.compile(r"^(getmtime|getctime|st_mtime|st_ctime|st_mtime_ns)$")
_CHECKPOINT = re.compile(r"ckpt|checkpoint|snapshot|resume|\.pth?$|\.safetensors$", re.IGNORECASE)
_REMOVES = re.compile(r"^(remove|unlink|rmtree|rotate|_rotate_checkpoints|prune|clean\w*)$")


class LatestByMtime(LocalRule):
    """
    ## What it does
    Finds `max(files, key=os.path.getmtime)` over checkpoints, or the first or last of those that are sorted so.

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
    calls = ("max", "sorted", "sort")
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
        Example(
            {
                "resume.py": """\
import glob
import os
import torch


def checkpoints(folder):
    return sorted(glob.glob(folder + "/*.ckpt"), key=os.path.getmtime)


def load_checkpoint(folder):
    files = os.listdir(folder)
    files.sort(key=lambda name: os.path.getmtime(os.path.join(folder, name)))
    return torch.load(files[-1])


def main(folder):
    found = checkpoints(folder)
    return torch.load(found[-1]) if found else None
"""
            },
            at=(7, 12),
        ),
        Example(
            {
                "hooks.py": """\
import glob
import os


class Snapshots:
    def files(self):
        return sorted(glob.glob(self.folder + "/*"), key=os.path.getmtime)

    def start(self, trainer):
        found = self.files()
        trainer.load(found[-1])
"""
            },
            at=(7,),
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


def list_checkpoints(folder):
    files = sorted(glob.glob(folder + "/*.ckpt"), key=os.path.getmtime)
    for path in files:
        print(path)
    return files
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
        around = [at.name for at in (scope, class_of(node, file)) if isinstance(at, ast.FunctionDef | ast.ClassDef)]
        named = any(map(_CHECKPOINT.search, around))
        if not named and not speaks_of(node, _CHECKPOINT):
            return
        if not any(isinstance(at, ast.Call) and _REMOVES.search(tail_of(at)) for at in walk(about)):
            yield self.local(file, node, "the newest checkpoint is chosen by the time of the file, on every rank")


def _takes_one(call: ast.Call, file: File) -> bool:
    """``max(...)``, or the first or last of ``sorted(...)``, at once, under a name, or where this function is called:
    an order alone may be for rotation or a list."""
    above = next(file.parents(call), None)
    if tail_of(call) == "max":
        return True
    if tail_of(call) == "sort":
        return isinstance(call.func, ast.Attribute) and _is_picked_from(ast.unparse(call.func.value), call, file)
    function = function_of(call, file)
    if isinstance(above, ast.Return) and function is not None:
        lists = [at for at in calls_of(file).get(function.name, ()) if function_called(at, file) is function]
        return any(_one_of(at, file) for at in lists)
    return _one_of(call, file)


def _one_of(listed: ast.expr, file: File) -> bool:
    above = next(file.parents(listed), None)
    if isinstance(above, ast.Subscript):
        return above.value is listed and not isinstance(above.slice, ast.Slice)
    return isinstance(above, ast.Assign) and _is_picked_from(ast.unparse(above.targets[0]), listed, file)


def _is_picked_from(name: str, listed: ast.expr, file: File) -> bool:
    """Below, the first or last of what has this name is taken."""
    later = (at for at in own(function_of(listed, file) or file.tree) if getattr(at, "lineno", 0) >= listed.lineno)
    return any(
        isinstance(at, ast.Subscript) and ast.unparse(at.value) == name and ast.unparse(at.slice) in ("0", "-1")
        for at in later
    )
