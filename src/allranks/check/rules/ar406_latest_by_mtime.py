"""AR406: each process takes the file with the newest time for the last checkpoint."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import function_called, function_named, reached
from allranks.check.tree.syntax import calls_of, function_of, keyword, rank_guard, tail_of
from allranks.check.tree.words import mentions, says
from allranks.findings import Finding

_TIMES = ("getmtime", "getctime", "st_mtime", "st_ctime")
_LOADS = ("load", "load_checkpoint", "restore", "from_pretrained", "load_state", "load_from_checkpoint", "load_file")
_SENDS = ("broadcast", "broadcast_object_list", "bcast", "broadcast_one_to_all")


class LatestByMtime(LocalRule):
    """
    ## What it does
    Finds `max(files, key=os.path.getmtime)` over checkpoints, or checkpoints that are sorted by time, on every rank.
    Files count as checkpoints by their name, or if the function loads them.

    ## Why is this bad
    The newest file may be half written. A copy or a restore changes the times. Each host has its own times.

    ## What happens with N processes
    The ranks may find different files: some resume from step 1000 and some from 900, without a message.

    ## Known problems
    A choice that one rank makes and broadcasts in another function is reported.

    ## Use instead
    The step in the name, of those that are complete, found on rank 0 and broadcast.
    `allranks.Checkpointer(...).restore(...)` does this.
    """

    code, name, severity, row = "AR406", "latest-by-mtime", "warning", "checkpoint load"
    cluster = "The ranks may find different files, and the newest one may be half written."
    advice = "Choose by the step, among complete checkpoints, on rank 0, and broadcast the choice."
    words = _TIMES
    nodes = (ast.Call,)
    calls = ("max", "sorted", "sort")
    bad = (
        """\
import glob
import os
import torch


def resume(model):
    newest = max(glob.glob("checkpoints/*.pt"), key=os.path.getmtime)  # <-- found
    model.load_state_dict(torch.load(newest))
""",
    )
    good = (
        """\
import glob
import os


def clean(log_files):
    for path in sorted(log_files, key=os.path.getmtime)[:-3]:
        os.remove(path)
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or rank_guard(node, file) is not None:
            return
        key = keyword(node, "key")
        named = function_named(key, file) if isinstance(key, ast.Name) else None
        asked = [ast.unparse(one) for one in (key, named) if one is not None]
        if any(word in text for text in asked for word in _TIMES) and _is_of_checkpoints(node, file):
            yield self.local(file, node, "the newest checkpoint is chosen by the time of the file, on every rank")


def _is_of_checkpoints(choice: ast.Call, file: File) -> bool:
    """Whether what is chosen is called a checkpoint, or is loaded in the function, and is neither sent nor deleted."""
    function = function_of(choice, file)
    scope = function or file.tree
    calls = {tail_of(at) for at in walk(scope) if isinstance(at, ast.Call)}
    if calls & {*_SENDS, "remove", "rmtree", "unlink"}:
        return False
    files = choice.args[0] if choice.args else choice.func
    named = function is not None and says(function.name, "checkpoint")
    loads = function_of(choice, file) is not None and any(
        function_called(at, file) is not None or tail_of(at) in _LOADS for at in calls_of(file).get("load", ())
    )
    texts = " ".join(ast.unparse(one) for one in reached(files, file))
    is_model = any(word in texts for word in (".pt", ".ckpt", ".pth", ".pkl", "checkpoint"))
    return mentions(files, "checkpoint") or named or is_model or (loads and bool(calls & set(_LOADS)))
