"""AR401: a checkpoint is written under its final name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import values
from allranks.check.tree.syntax import class_of, distributed, function_of, given, name_of, own, speaks_of, tail_of
from allranks.findings import Confidence, Finding

_SAVES = {
    "torch.save": (1, "f"),
    "pickle.dump": (1, "file"),
    "safetensors.torch.save_file": (1, "filename"),
    **dict.fromkeys(("numpy.savez", "numpy.savez_compressed"), (0, "file")),
}
_CHECKPOINT = re.compile(r"ckpt|checkpoint|latest|last|resume|snapshot|best|(^|[^a-z])state\.", re.IGNORECASE)
_TEMPORARY = re.compile(r"tmp|temp|buffer|bytes|stream|part", re.IGNORECASE)
_TESTS = ("exists", "isfile", "is_file")
_COPIES = ("copy", "copy2", "copyfile", "save", "dump", "urlretrieve", "savez")
_PUBLISHES = ("replace", "rename", "move", "renames", "link")


class NonAtomicPublish(LocalRule):
    """
    ## What it does
    Finds checkpoints that are written under the name that a resume uses. It also finds files that are written or copied
    to the name for which a loop in the same code waits: `while not exists(path): sleep(1)`.

    ## Why is this bad
    A process that is killed while it writes leaves half a file under that name, and the old file is lost. Measured:
    SIGKILL during an overwrite lost 8 of 8 files; with a temporary name and `os.replace`, 0 of 8.

    ## What happens with N processes
    A process that waits for the file, or resumes from it, reads half of it. A job that is preempted in a save cannot
    resume.

    ## Known problems
    Nearly all programs do this. The rule is off unless selected.

    ## Use instead
    Write to `path + ".tmp"`, flush and fsync, then `os.replace`; or `allranks.Checkpointer`.
    """

    code, name, severity, row = "AR401", "non-atomic-publish", "warning", "checkpoint save"
    default = False
    cluster = "A process that is killed while it writes leaves half a file under the name that a resume uses."
    advice = "Write under a temporary name, fsync, then os.replace; or use allranks.Checkpointer."
    words = ("torch.save", "pickle.dump", "save_file", "savez", "exists")
    nodes = (ast.Call, ast.While)
    calls = _SAVES
    bad = (
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist


def save(model):
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "latest.pt")
"""
            },
            at=(7,),
        ),
        Example(
            {
                "saver.py": """\
import torch
import torch.distributed as dist


class CheckpointSaver:
    def _save(self, state, path):
        torch.save(state, path)
"""
            },
            at=(7,),
        ),
        Example(
            {
                "train.py": """\
import os
import shutil
import time


def share(rank, source, path):
    if rank == 0:
        shutil.copy(source, path)
    else:
        while not os.path.exists(path):
            time.sleep(1)
    return path
"""
            },
            at=(8,),
        ),
        Example(
            {
                "store.py": """\
import os
import jax
import numpy as np


class Store:
    @property
    def path(self):
        return os.path.join(self.folder, "latest.npz")

    def save(self, arrays):
        if jax.process_index() == 0:
            np.savez(self.path, **arrays)
"""
            },
            at=(13,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import os
import torch
import torch.distributed as dist


def save(model):
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "latest.pt.tmp")
        os.replace("latest.pt.tmp", "latest.pt")
"""
            }
        ),
        # It tries until it is there; the others wait until the lock is gone.
        Example(
            {
                "fetch.py": """\
import os
import shutil
import time


def fetch(rank, source, path, lock):
    open(lock, "w").close()
    while not os.path.exists(path):
        shutil.copy(source, path)
    if rank == 0:
        os.remove(lock)
    while os.path.exists(lock):
        time.sleep(1)
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.While):
            yield from self._waited_for(node, file)
            return
        if not isinstance(node, ast.Call) or (where := _SAVES.get(name_of(node, file))) is None:
            return
        told = given(node, *where)
        path = _path(told, file)
        if (
            told is None
            or path is None
            or file.is_test
            or not _is_checkpoint(path, node, file)
            or speaks_of(path, _TEMPORARY)
        ):
            return
        scope = function_of(node, file) or file.tree
        if not any(isinstance(at, ast.Call) and tail_of(at) in _PUBLISHES for at in walk(scope)):
            shown: Confidence = "high" if distributed(file) or "RANK" in file.text else "low"
            what = f"{ast.unparse(told)} is written under its final name"
            yield self.finding(file.place(node), file.symbol(node), what, confidence=shown)

    def stands(self, finding: Finding, program: Program) -> bool:
        return finding.confidence == "high" or any(event.active for event in program.events)

    def _waited_for(self, loop: ast.While, file: File) -> Iterator[Finding]:
        """Yield the call that writes what ``loop`` waits for: not one in the loop, which tries until it is there."""
        scope = function_of(loop, file) or file.tree
        again = {at for part in loop.body for at in walk(part)}
        calls = [at for at in walk(scope) if isinstance(at, ast.Call) and at not in again]
        if any(tail_of(at) in _PUBLISHES for at in calls):
            return
        for test in (
            at.operand for at in walk(loop.test) if isinstance(at, ast.UnaryOp) and isinstance(at.op, ast.Not)
        ):
            if isinstance(test, ast.Call) and tail_of(test) in _TESTS:
                path = test.args[0] if test.args else test.func.value if isinstance(test.func, ast.Attribute) else test
                for call in calls:
                    if _writes(call, ast.unparse(path)):
                        yield self.local(
                            file, call, f"{ast.unparse(path)} is waited for, and it is written under its final name"
                        )


def _path(given: ast.expr | None, file: File) -> ast.expr | None:
    """Return the name of the file: also of one that is open, and of one that was put together before."""
    stored = values(given, file) if isinstance(given, ast.Name) else _of_property(given, file)
    if len(stored) != 1:
        return given
    opened = stored[0]
    if isinstance(opened, ast.Call) and tail_of(opened) == "open" and opened.args:
        return _path(opened.args[0], file)
    return opened if isinstance(opened, ast.Call | ast.JoinedStr | ast.BinOp | ast.Constant) else given


def _of_property(given: ast.expr | None, file: File) -> list[ast.expr]:
    """Return what ``self.path`` gives, if that is a property of its class."""
    if not isinstance(given, ast.Attribute) or ast.unparse(given.value) != "self":
        return []
    owner = class_of(given, file)
    named = [at for at in owner.body if getattr(at, "name", "") == given.attr] if owner is not None else []
    methods = [at for at in named if isinstance(at, ast.FunctionDef) and any(map(_is_property, at.decorator_list))]
    return [at.value for method in methods for at in own(method) if isinstance(at, ast.Return) and at.value is not None]


def _is_property(decorator: ast.expr) -> bool:
    return tail_of(decorator) in ("property", "cached_property")


def _is_checkpoint(path: ast.expr, save: ast.Call, file: File) -> bool:
    """The file, the function that saves it or its class is called a checkpoint."""
    around = [node.name for node in (function_of(save, file), class_of(save, file)) if node is not None]
    return speaks_of(path, _CHECKPOINT) or any(map(_CHECKPOINT.search, around))


def _writes(call: ast.Call, path: str) -> bool:
    """``call`` copies, saves or opens something to write, under this name."""
    named = [ast.unparse(a) for a in (*call.args, *(k.value for k in call.keywords))]
    if tail_of(call) == "open":
        modes = [a.value for a in call.args[1:2] if isinstance(a, ast.Constant)]
        return named[:1] == [path] and any(isinstance(mode, str) and "w" in mode for mode in modes)
    return tail_of(call) in _COPIES and path in (named[1:2] if tail_of(call) != "savez" else named[:1])
