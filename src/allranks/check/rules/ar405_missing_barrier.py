"""AR405: rank 0 makes what the others use, and nothing makes them wait."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.syntax import asks_rank, distributed, function_of, inside, own, tail_of
from allranks.check.tree.words import parts
from allranks.findings import Finding, Note

# What rank 0 makes or removes, by its first argument or receiver.
_MAKES = (
    "makedirs",
    "mkdir",
    "rmtree",
    "copytree",
    "copyfile",
    "copy",
    "snapshot_download",
    "urlretrieve",
    "extractall",
)
_USES = (
    *("open", "listdir", "load", "save", "glob", "iterdir", "read_csv", "read_text", "write_text", "from_pretrained"),
    *("load_dataset", "load_from_disk", "imwrite", "savez", "to_csv", "write_bytes", "read_bytes", "ImageFolder"),
)
# Words of calls in which the ranks may wait for each other.
_WAITS = frozenset(
    [
        *("barrier", "wait", "sync", "synchronize", "broadcast", "gather", "reduce", "allreduce", "prepare", "fit"),
        *("ddp", "parallel", "distributeddataparallel", "fsdp", "init", "initialize", "allgather", "spawn", "train"),
    ]
)


class MissingBarrier(LocalRule):
    """
    ## What it does
    Finds a file or folder that rank 0 makes, copies, removes or downloads, and that every rank reads, lists or fills
    further down in the same function, with nothing between at which the ranks wait.

    ## Why is this bad
    The other ranks may be faster.

    ## What happens with N processes
    A rank that is faster than rank 0 finds no file, the file of the last run, or half of a file.

    ## Known problems
    Any call between that is named as if it waited for others (`init`, `train`, `sync`) hides the fault.

    ## Use instead
    A barrier between, on all ranks (`dist.barrier()`, `accelerator.wait_for_everyone()`).
    """

    code, name, severity, row = "AR405", "missing-barrier", "error", "collectives"
    cluster = "A rank that is faster than rank 0 finds no file, the file of the last run, or half of a file."
    advice = "Put a barrier that all ranks reach between what rank 0 does and what the others do."
    words = _MAKES
    nodes = (ast.If,)
    bad = (
        Example(
            {
                "train.py": """\
import os
import torch.distributed as dist


def main(folder):
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        os.makedirs(folder)
    with open(f"{folder}/{dist.get_rank()}.txt", "w") as file:
        file.write("here")
"""
            },
            at=(9,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import os
import torch.distributed as dist


def main(folder):
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        os.makedirs(folder)
    dist.barrier()
    with open(f"{folder}/{dist.get_rank()}.txt", "w") as file:
        file.write("here")
"""
            }
        ),
    )

    def applies(self, file: File) -> bool:
        return not file.is_test and distributed(file)

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.If) or not asks_rank(node.test) or node.orelse:
            return
        made = [at for part in node.body for at in ast.walk(part) if isinstance(at, ast.Call) and tail_of(at) in _MAKES]
        paths = {path: at for at in made for path in _paths(at)}
        if not paths or any(_waits(at) for part in node.body for at in ast.walk(part)):
            return
        below = [at for at in own(function_of(node, file) or file.tree) if _line(at) > (node.end_lineno or 0)]
        for at in sorted(below, key=_line):
            if _waits(at) or isinstance(at, ast.Return):
                return
            if isinstance(at, ast.Call) and tail_of(at) in _USES and not _is_guarded(at, file):
                path = next((path for path in paths if any(path in _texts(one) for one in _given(at))), None)
                if path is not None:
                    notes = [Note("rank 0 does this", file.place(paths[path]))]
                    what = f"every rank uses {path} while rank 0 may still work on it"
                    yield self.finding(file.place(at), file.symbol(at), what, notes=notes)
                    return


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))


def _waits(node: ast.AST) -> bool:
    """Whether it is a call in which the ranks may wait for each other, by its name."""
    return isinstance(node, ast.Call) and not parts(ast.unparse(node.func)).isdisjoint(_WAITS)


def _given(call: ast.Call) -> list[ast.expr]:
    receiver = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    return [*call.args, *(one.value for one in call.keywords), *receiver]


def _texts(node: ast.expr) -> set[str]:
    return {ast.unparse(at) for at in ast.walk(node) if isinstance(at, ast.Name | ast.Attribute)}


def _paths(call: ast.Call) -> list[str]:
    """Return the names of what a call makes: its last path, or its receiver."""
    given = [one for one in _given(call) if isinstance(one, ast.Name | ast.Attribute)]
    return [name for one in given if (name := ast.unparse(one)) not in ("os", "shutil", "self", "os.path", "Path")]


def _is_guarded(node: ast.AST, file: File) -> bool:
    return any(isinstance(parent, ast.If | ast.IfExp) and asks_rank(parent.test) for parent, _ in inside(node, file))
