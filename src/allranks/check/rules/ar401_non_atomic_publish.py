"""AR401: a checkpoint is written over the last good one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.origins import reached
from allranks.check.tree.syntax import calls_of, distributed, function_of, given, name_of, tail_of
from allranks.check.tree.words import mentions, says
from allranks.findings import Finding

# Call -> where it takes the file.
_SAVES = {
    "torch.save": (1, "f"),
    "pickle.dump": (1, "file"),
    "safetensors.torch.save_file": (1, "filename"),
    **dict.fromkeys(("numpy.savez", "numpy.savez_compressed"), (0, "file")),
}
_PUBLISHES = ("replace", "rename", "move", "renames", "link", "copyfile", "copy", "NamedTemporaryFile")
_LATEST = ("latest", "last", "resume", "checkpoint.pt", "ckpt.pt", "checkpoint.pkl", "state.pt")
_COUNTED = ("epoch", "step", "iter", "best", "final")


class NonAtomicPublish(LocalRule):
    """
    ## What it does
    Finds a checkpoint that a program of several processes writes again and again under one name (`last.pt`), and that
    the same file loads to resume.

    ## Why is this bad
    A process that is killed while it writes leaves half a file under that name, and the last good one is lost.
    Measured: SIGKILL during an overwrite lost 8 of 8 files; with a temporary name and `os.replace`, 0 of 8.

    ## What happens with N processes
    A job that is preempted in a save cannot resume. A process that waits for the file reads half of it.

    ## Known problems
    The file is recognised by its name: *last*, *latest*, *resume*, or `checkpoint.pt`.

    ## Use instead
    Write to `path + ".tmp"`, flush and fsync, then `os.replace`; or `allranks.Checkpointer`.
    """

    code, name, severity, row = "AR401", "non-atomic-publish", "warning", "checkpoint save"
    cluster = "A process that is killed while it writes leaves half a file under the name that a resume uses."
    advice = "Write under a temporary name, fsync, then os.replace; or use allranks.Checkpointer."
    words = ("torch.save", "pickle.dump", "save_file", "savez")
    nodes = (ast.Call,)
    calls = tuple(_SAVES)
    bad = (
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist


def save(model, folder):
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), f"{folder}/last.pt")


def resume(model, folder):
    model.load_state_dict(torch.load(f"{folder}/last.pt", map_location="cpu"))
"""
            },
            at=(7,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import os
import torch
import torch.distributed as dist


def save(model, folder, step):
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), f"{folder}/last.pt.tmp")
        os.replace(f"{folder}/last.pt.tmp", f"{folder}/last.pt")
        torch.save(model.state_dict(), f"{folder}/step_{step}.pt")


def resume(model, folder):
    model.load_state_dict(torch.load(f"{folder}/last.pt", map_location="cpu"))
"""
            }
        ),
    )

    def applies(self, file: File) -> bool:
        return not file.is_test and distributed(file) and not says(file.path, "one_process")

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or (where := _SAVES.get(name_of(node, file))) is None:
            return
        path = given(node, *where)
        names = [ast.unparse(one).lower() for one in reached(path, file)] if path is not None else []
        if path is None or not any(word in name for name in names for word in _LATEST):
            return
        if any(word in name for name in names for word in (*_COUNTED, "tmp", "temp", "buffer", "bytesio")):
            return
        if any("{" in name.rpartition("/")[2] for name in names if "{" in name):
            return  # a name of each save
        scope = function_of(node, file) or file.tree
        publishes = any(isinstance(at, ast.Call) and tail_of(at) in _PUBLISHES for at in ast.walk(scope))
        if not publishes and _is_resumed(file):
            yield self.local(file, node, f"{ast.unparse(path)} is written over the last good checkpoint")


def _is_resumed(file: File) -> bool:
    """Whether the file loads a checkpoint, too."""
    loads = [at for word in ("load", "restore", "load_file") for at in calls_of(file).get(word, ())]
    return any(at.args and (mentions(at.args[0], "checkpoint") or "last" in ast.unparse(at.args[0])) for at in loads)
