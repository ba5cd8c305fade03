"""AR803: a sleep stands where a barrier is meant."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.one_rank import on_one
from allranks.check.tree.syntax import asks_rank, function_of, inside, name_of, own, rank_guard, tail_of
from allranks.findings import Finding

# Who writes a file ends with one of these, so that nobody reads half of it; a folder is made at once.
_PUBLISHES = ("replace", "rename", "move", "renames", "link", "touch")
_FOLDERS = ("makedirs", "mkdir", "print", "join", "info")
_WAITS = ("barrier", "wait_for_everyone", "init_process_group", "initialize", "init_distributed", "sync_global_devices")
_SHORT = 1


class SleepAsBarrier(LocalRule):
    """
    ## What it does
    Finds a sleep that makes some ranks wait for the work of another: under a rank guard, or in a loop until a file
    exists that the other branch writes.

    ## Why is this bad
    How long the other rank takes is not known. A file exists as soon as it is opened.

    ## What happens with N processes
    If the other rank is slow once, the ranks continue too early, read half a file or none, and diverge.

    ## Known problems
    A sleep of rank 0 only is not reported: it rarely waits for the others' work. Nor is a sleep inside a loop that
    repeats a request.

    ## Use instead
    A barrier or a broadcast that all ranks call: `torch.distributed.barrier()`,
    `multihost_utils.sync_global_devices("downloaded")`, or a function under `@allranks.main_rank`.
    """

    code, name, severity, row = "AR803", "sleep-as-barrier", "warning", "collectives"
    cluster = "When the other rank is slower than this, the ranks continue too early and diverge."
    advice = "Use a collective: a barrier after the work of rank 0, or a broadcast of its result."
    words = ("sleep",)
    nodes = (ast.Call,)
    calls = ("time.sleep",)
    bad = (
        """\
import os
import time
import torch
import torch.distributed as dist


def prepare(path, data):
    if dist.get_rank() == 0:
        torch.save(data, path)
    else:
        while not os.path.exists(path):
            time.sleep(1)  # <-- found
    if dist.get_rank() != 0:
        time.sleep(30)  # <-- found
    return torch.load(path)
""",
    )
    good = (
        """\
import time
import torch
import torch.distributed as dist


def prepare(path, data):
    if dist.get_rank() == 0:
        torch.save(data, path)
    dist.barrier()
    while not data.ready():
        time.sleep(1)
    return torch.load(path)
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or name_of(node, file) != "time.sleep" or not node.args:
            return
        if _waits_for_file(node, file):
            yield self.local(file, node, "the other ranks wait until a file exists, and may read half of it")
            return
        seconds, guard = node.args[0], rank_guard(node, file)
        short = isinstance(seconds, ast.Constant) and isinstance(seconds.value, int | float) and seconds.value < _SHORT
        spread = asks_rank(seconds) or "random" in ast.unparse(seconds)
        if guard is None or short or spread or on_one(node, file) is not None or _is_about_another(guard):
            return
        loops = any(isinstance(parent, ast.While | ast.For | ast.ExceptHandler) for parent, _ in inside(node, file))
        scope = function_of(node, file) or file.tree
        later = (at for at in own(scope) if isinstance(at, ast.Call) and at.lineno > node.lineno)
        if not loops and not any(tail_of(at) in _WAITS for at in later):
            yield self.local(file, node, f"a sleep for some ranks only ({ast.unparse(guard)}) is used as a barrier")


def _waits_for_file(call: ast.Call, file: File) -> bool:
    """Whether it waits until a path exists, and the other branch writes it and does not rename at the end."""
    loop = None
    for parent, child in inside(call, file):
        if isinstance(parent, ast.While) and "exist" in (asked := ast.unparse(parent.test)) and "size" not in asked:
            loop = parent
        elif loop is not None and isinstance(parent, ast.If) and asks_rank(parent.test):
            writes = parent.body if child in parent.orelse else parent.orelse
            calls = {tail_of(at) for part in writes for at in walk(part) if isinstance(at, ast.Call)}
            return bool(calls.difference(_FOLDERS)) and calls.isdisjoint(_PUBLISHES)
    return False


def _is_about_another(guard: ast.expr) -> bool:
    """Whether the rank is compared with that of some message: who is meant changes."""
    return isinstance(guard, ast.Compare) and not all(isinstance(one, ast.Constant) for one in guard.comparators)
