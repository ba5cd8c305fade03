"""AR406: the newest checkpoint is found by the times of files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.counts import default_of
from allranks.check.tree.origins import function_called, latest, values
from allranks.check.tree.syntax import (
    arguments,
    calls_of,
    class_of,
    function_of,
    keyword,
    name_of,
    own,
    places_in,
    rank_guard,
    speaks_of,
    tail_of,
)
from allranks.findings import Finding

_TIMES = re.compile(r"^(getmtime|getctime|st_mtime|st_ctime|st_mtime_ns)$")
_CHECKPOINT = re.compile(
    r"ckpt|checkpoint|snapshot|resume|\.pth?$|\.safetensors$|(newest|latest|last|recent)_?(tag|model|weights?|step|state)",
    re.IGNORECASE,
)
# What is loaded here is where a run goes on, whatever its file is called.
_LOADS = re.compile(
    r"(?i)(^|[._])(load_\w*(checkpoint|ckpt|state|weights|params|model)\w*|restore\w*|resume\w*|from_pretrained)$|^torch\.load$"
)
_GATED = re.compile(r"(?i)rank|main|master|chief|process|once")  # a decorator that lets one process in
_REMOVES = re.compile(r"^(remove|unlink|rmtree|rotate|_rotate_checkpoints|prune|clean\w*)$")


class LatestByMtime(LocalRule):
    """
    ## What it does
    Finds `max(files, key=os.path.getmtime)` over checkpoints, or the first or last of checkpoints that are sorted by
    time. Files count as checkpoints by their name, or if this file loads them (`torch.load`, `load_checkpoint`,
    `restore`).

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
        Example(
            {
                "resume.py": """\
import glob
import os
import torch


def newest(folder):
    found = glob.glob(folder + "/step*")
    found.sort(key=os.path.getmtime)
    return os.path.basename(found[-1])


def resume(engine, folder):
    tag = newest(folder)
    engine.load_checkpoint(folder, tag=tag)


def start(folder):
    files = glob.glob(folder + "/*")
    latest = max(files, key=os.path.getctime)
    return torch.load(latest)
"""
            },
            at=(8, 19),
        ),
        Example(
            {
                "resume.py": """\
import glob
import os

ORDERS = {"time": lambda path: os.stat(path).st_mtime, "name": str}


def newest(folder, by="time"):
    found = glob.glob(folder + "/last*.pt")
    return max(found, key=ORDERS[by])


def newest_tag(folder):
    found = os.listdir(folder)
    found.sort(key=os.path.getmtime)
    return found[-1]
"""
            },
            at=(9, 14),
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


def last_line(folder, model):
    model.load_state_dict({})
    with open(newest_log(folder)) as file:
        return file.read()


def prune_checkpoints(folder):
    for path in sorted(glob.glob(folder + "/*.ckpt"), key=os.path.getmtime)[:-3]:
        os.remove(path)


@master_only
def upload(folder):
    send(max(glob.glob(folder + "/*.ckpt"), key=os.path.getmtime))


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
        if key is None or not _by_time(key, file) or rank_guard(node, file) is not None:
            return
        about = scope if scope is not None else node
        around = [at.name for at in (scope, class_of(node, file)) if isinstance(at, ast.FunctionDef | ast.ClassDef)]
        named = any(map(_CHECKPOINT.search, around))
        if (
            not named
            and not any(speaks_of(at, _CHECKPOINT) for at in (node, *_sorted(node, file)))
            and not _is_loaded(node, file)
        ):
            return
        if isinstance(scope, ast.FunctionDef) and any(speaks_of(at, _GATED) for at in scope.decorator_list):
            return
        if not any(isinstance(at, ast.Call) and _REMOVES.search(tail_of(at)) for at in walk(about)):
            yield self.local(file, node, "the newest checkpoint is chosen by the time of the file, on every rank")


def _is_loaded(picked: ast.Call, file: File, *, below: bool = True) -> bool:
    """What is picked, or returned where this function is called (``below``), is given to what loads a checkpoint."""
    scope = function_of(picked, file)
    around = [at for at in file.parents(picked) if isinstance(at, ast.stmt | ast.Call)]
    above = next(at for at in around if isinstance(at, ast.stmt))
    if any(_loads(at, file) for at in around[: around.index(above)]):
        return True
    names = {ast.unparse(target) for target in above.targets} if isinstance(above, ast.Assign) else set()
    if tail_of(picked) == "sort" and isinstance(picked.func, ast.Attribute):
        names = {ast.unparse(picked.func.value)}
    later = [at for at in own(scope or file.tree) if getattr(at, "lineno", 0) >= picked.lineno]
    if any(_loads(at, file) and _speaks_of_one(at, names) for at in later):
        return True
    if not below or not any(isinstance(at, ast.Return) and (at is above or _speaks_of_one(at, names)) for at in later):
        return False
    calls = calls_of(file).get(scope.name, ()) if scope is not None else ()
    return any(function_called(at, file) is scope and _is_loaded(at, file, below=False) for at in calls)


def _loads(node: ast.AST, file: File) -> bool:
    return isinstance(node, ast.Call) and _LOADS.search(name_of(node, file) or tail_of(node)) is not None


def _speaks_of_one(node: ast.AST, names: set[str]) -> bool:
    parts = arguments(node) if isinstance(node, ast.Call) else [node]
    return any(not names.isdisjoint(places_in(part)) for part in parts)


def _by_time(key: ast.expr, file: File) -> bool:
    """``os.path.getmtime``, a lambda, a function of this file, or the one that a dictionary of it holds under a name
    that is known."""
    if isinstance(key, ast.Subscript):
        given = default_of(key.slice, file) if isinstance(key.slice, ast.Name) else [key.slice]
        names = {at.value for at in given if isinstance(at, ast.Constant)}
        held = (at for at in values(key.value, file) if isinstance(at, ast.Dict))
        pairs = (pair for at in held for pair in zip(at.keys, at.values, strict=True))
        return any(isinstance(k, ast.Constant) and k.value in names and _by_time(v, file) for k, v in pairs)
    stored = latest(key, file) if isinstance(key, ast.Name) else []
    functions = (at for at in file.kinds.get(ast.FunctionDef, ()) if getattr(at, "name", "") == tail_of(key))
    return any(speaks_of(at, _TIMES) for at in (key, *stored, *functions))


def _sorted(call: ast.Call, file: File) -> list[ast.expr]:
    """Return what was stored under the name of what a call puts in order."""
    files = call.func.value if isinstance(call.func, ast.Attribute) else call.args[0] if call.args else None
    return latest(files, file) if isinstance(files, ast.Name) else []


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
