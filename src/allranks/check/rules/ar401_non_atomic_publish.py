"""AR401: a checkpoint is written over the last good one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.program import Program
from allranks.check.rule import LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import function_called, is_handed, passed, reached
from allranks.check.tree.syntax import EVIDENCE, calls_of, function_of, given, name_of, own, tail_of
from allranks.check.tree.words import mentions, says
from allranks.findings import Finding

_ARRAYS = ("numpy.savez", "numpy.savez_compressed")
# Call -> where it takes the file.
_SAVES = {
    "torch.save": (1, "f"),
    "pickle.dump": (1, "file"),
    "safetensors.torch.save_file": (1, "filename"),
    **dict.fromkeys(_ARRAYS, (0, "file")),
}
_LOADS = ("load", "restore", "load_file", "open", "load_checkpoint")
_PUBLISHES = ("replace", "rename", "move", "renames", "link", "copyfile", "copy", "NamedTemporaryFile")
_COUNTED = ("epoch", "step", "iter", "best", "final", "tmp", "temp", "part")
# Files of a folder that is a checkpoint: it is the folder that has a name of its own.
_OF_FOLDER = ("optimizer", "scheduler", "progress", "rng_state", "trainer_state", "training_args")
_FILE = (".pt", ".pth", ".pkl", ".ckpt", ".npz", ".safetensors", ".tar", ".bin", ".pickle", ".msgpack")


class NonAtomicPublish(LocalRule):
    """
    ## What it does
    Finds a checkpoint that a program of several processes writes again and again under one name (`last.pt`), and that
    it loads under the same name to resume. Also one that is called the last (`last.pt`), in a file that resumes from
    a path that its user gives.

    ## Why is this bad
    A process that is killed while it writes leaves half a file under that name, and the last good one is lost.
    Measured: SIGKILL during an overwrite lost 8 of 8 files; with a temporary name and `os.replace`, 0 of 8.

    ## What happens with N processes
    A job that is preempted in a save cannot resume. A process that waits for the file reads half of it.

    ## Known problems
    The name of the file is compared with the names that the same file of the program loads. A function that also saves
    under a name of its own each time (by step or epoch) keeps the last good one: it is not reported.

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
        """\
import torch
import torch.distributed as dist


def save(model, folder, step):
    if dist.get_rank() == 0:
        torch.save({"model": model.state_dict(), "step": step}, f"{folder}/last.pt")  # <-- found


def resume(model, folder):
    model.load_state_dict(torch.load(f"{folder}/last.pt", map_location="cpu"))
""",
    )
    good = (
        """\
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
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test and not says(file.path, "one_process")

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or (where := _SAVES.get(name_of(node, file))) is None:
            return
        path = given(node, *where)
        saved = _names(path, file)
        if path is None or not saved or _is_counted(path, file) or not _is_progress(node, file):
            return
        scope = function_of(node, file) or file.tree
        calls = [at for at in walk(scope) if isinstance(at, ast.Call)]
        paths = (given(at, *_SAVES[name_of(at, file)]) for at in calls if name_of(at, file) in _SAVES)
        kept = any(_is_counted(one, file) for one in paths if one is not None)
        read = saved & _loaded(file) or {name for name in saved if says(name, "latest") and _resumes(file)}
        if read and not kept and not any(tail_of(at) in _PUBLISHES for at in calls):
            name = min(read)
            found = self.local(
                file, node, f"{name} is written over the last good checkpoint, which this file resumes from"
            )
            yield replace(found, confidence="low") if is_handed(path, file) else found

    def confirm(self, finding: Finding, program: Program) -> bool:
        """Whether its program runs as several processes."""
        return program.facts.says(finding.place.path, *EVIDENCE)


def _names(path: ast.expr | None, file: File) -> frozenset[str]:
    """Return the names of checkpoints in what a path is made of; none where a number or a rank is a part of it."""
    whole = [at for one in reached(path, file) for at in walk(one)] if path is not None else []
    texts = [at.value for at in whole if isinstance(at, ast.Constant) and isinstance(at.value, str)]
    named = frozenset(text.rpartition("/")[2] for text in texts if text.endswith(_FILE))
    named = frozenset(name for name in named if not name.startswith(_OF_FOLDER))
    return named if all(len(name) > len(".safetensors") or not name.startswith(".") for name in named) else frozenset()


def _is_counted(path: ast.expr, file: File) -> bool:
    """Whether a path is another one each time: a number is a part of it, also where a function of the file makes it."""
    reach = list(reached(path, file))
    handed = [value for one in reach for at in walk(one) for value in passed(at, file)]
    reach += [one for value in handed for one in reached(value, file)]
    called = [function_called(at, file) for one in reach for at in walk(one) if isinstance(at, ast.Call)]
    returns = [at for one in called if one is not None for at in own(one) if isinstance(at, ast.Return)]
    texts = [ast.unparse(one) for one in (*reach, *returns)]
    return any("{" in text.rpartition("/")[2] or any(word in text for word in _COUNTED) for text in texts)


def _is_progress(save: ast.Call, file: File) -> bool:
    """Whether what is saved is the state of a training: it holds an optimizer, or how far the training is."""
    state = save.args[0] if save.args and name_of(save, file) not in _ARRAYS else save
    return any(mentions(one, "progress") for one in reached(state, file))


def _resumes(file: File) -> bool:
    """Whether a file loads what its user gives to resume from: ``torch.load(args.resume)``."""
    loads = (at for word in _LOADS for at in calls_of(file).get(word, ()) if at.args)
    return any(mentions(at.args[0], "resumes") for at in loads)


def _loaded(file: File) -> frozenset[str]:
    """Return the names of the checkpoints that a file loads."""

    def find(_: ast.Module) -> frozenset[str]:
        loads = [at for word in _LOADS for at in calls_of(file).get(word, ()) if at.args and not _writes(at)]
        return frozenset(name for at in loads for name in _names(at.args[0], file))

    return file.once("loaded checkpoints", file.tree, find)


def _writes(call: ast.Call) -> bool:
    return tail_of(call) == "open" and len(call.args) > 1 and "w" in ast.unparse(call.args[1])
