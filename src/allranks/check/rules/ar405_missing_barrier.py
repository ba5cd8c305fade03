"""AR405: rank 0 writes what all ranks read, and nobody waits."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.nodes import walk
from allranks.check.origins import function_called, reached
from allranks.check.program import Event, Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.source import File
from allranks.check.syntax import asks_rank, function_of, inside, leaves, own, rank_guard, tail_of
from allranks.findings import Finding, Note

_WRITES = ("checkpoint", "file", "mkdir", "folder", "download")
_READS = ("read", "load")
# What fills a folder, with the position of the path.
_FILLS = {"save": 1, "save_file": 1, "savez": 0, "savetxt": 0, "open": 0, "to_csv": 0, "to_parquet": 0}
_MODES = re.compile(r"^[wax]")
_MEETS = re.compile(
    r"barrier|wait|sync|broadcast|gather|reduce|prepare|distributed|FSDP|DDP|fully_shard|init_|exchange|rendezvous|setup",
    re.IGNORECASE,
)
_NEAR = 60


class MissingBarrier(LocalRule, ProgramRule):
    """
    ## What it does
    Finds a file or folder that rank 0 makes and that the other ranks read or fill, in the same function under the same
    name, with no collective between: also a folder that rank 0 makes for files that each rank writes into it.

    ## Why is this bad
    The others are there first.

    ## What happens with N processes
    A rank that is faster than rank 0 finds no file, last run's file, or half of a file.

    ## Known problems
    Writer and reader in two functions are not seen.

    ## Use instead
    A barrier between, on all ranks (`dist.barrier()`, `accelerator.wait_for_everyone()`).

    ## Fix safety
    There is no automatic fix: the barrier must stand where all ranks come by.
    """

    code, name, severity, row = "AR405", "missing-barrier", "error", "checkpoint save"
    cluster = "A rank that is faster than rank 0 finds no file, an old one, or half of one."
    advice = "Put a barrier that all ranks reach between the write and the read."
    words = ("makedirs", "mkdir")
    nodes = (ast.Call,)
    calls = ("os.makedirs", "pathlib.Path.mkdir")
    bad = (
        Example(
            {
                "save.py": """\
import os
import torch
import torch.distributed as dist

def save(folder, model, optimizer, rank):
    if rank == 0:
        os.makedirs(folder, exist_ok=True)
        torch.save(model, os.path.join(folder, "model.pt"))
    path = os.path.join(folder, f"optimizer_{rank}.pt")
    torch.save(optimizer, path)
"""
            },
            at=(10,),
        ),
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist

def main(model, path):
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path)
    state = torch.load(path)
"""
            },
            at=(8,),
        ),
    )
    good = (
        Example(
            {
                "save.py": """\
import os
import torch
import torch.distributed as dist

def save(folder, optimizer, rank):
    if rank == 0:
        os.makedirs(folder, exist_ok=True)
    dist.barrier()
    torch.save(optimizer, os.path.join(folder, f"optimizer_{rank}.pt"))

def save_own(folder, optimizer, rank):
    if rank == 0:
        os.makedirs("logs", exist_ok=True)
        os.makedirs(folder, exist_ok=True)
        torch.save(optimizer, os.path.join(folder, f"optimizer_{rank}.pt"))
    os.makedirs(folder, exist_ok=True)
    torch.save(optimizer, os.path.join(folder, f"optimizer_{rank}.pt"))

def save_parts(folder, parts, rank):
    if rank == 0:
        os.makedirs(folder, exist_ok=True)
    for name, part in parts.items():
        if rank != 0:
            continue
        torch.save(part, os.path.join(folder, f"{name}" if name else "part"))
"""
            }
        ),
        Example(
            {
                "train.py": """\
import os
import torch
import torch.distributed as dist

def main(model, path):
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        os.makedirs("runs")
        torch.save(model.state_dict(), path)
    dist.barrier()
    state = torch.load(path)
    if dist.get_rank() == 0:
        torch.save(state, "last.pt")
        state = torch.load("last.pt")
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or tail_of(node) not in ("makedirs", "mkdir") or file.is_test:
            return
        function, folder = function_of(node, file), _folder(node)
        if function is None or folder is None or not _alone(node, file) or _is_waited_for(folder, function):
            return
        for call in sorted(_calls(function), key=lambda at: at.lineno):
            if call.lineno > node.lineno + _NEAR:
                return
            if call.lineno <= (node.end_lineno or node.lineno) or _alone(call, file):
                continue
            if _may_meet(call, file) or tail_of(call) in ("makedirs", "mkdir"):
                return
            if _fills(call, folder, file):
                note = Note("rank 0 makes it here", file.place(node))
                message = f"every rank writes into {folder} while rank 0 may not have made it yet"
                yield self.finding(file.place(call), file.symbol(call), message, notes=[note])
                return

    def check(self, program: Program) -> Iterator[Finding]:
        made: dict[tuple[str, str, str], list[Event]] = {}
        for event in program.effects(*_WRITES):
            if event.active and event.roles == {"first"} and event.target and not event.per_process:
                made.setdefault((event.place.path, event.symbol, event.target), []).append(event)
        for event in program.effects(*_READS):
            for writer in made.get((event.place.path, event.symbol, event.target), ()):
                later = writer.place < event.place and writer.met == event.met
                if later and event.everyone and not (event.ordered or writer.ordered):
                    note = Note("rank 0 makes it here", writer.place)
                    yield self.found(
                        event, f"every rank reads {event.target} while rank 0 may still write it", notes=(note,)
                    )
                    break


def _calls(function: ast.AST) -> Iterator[ast.Call]:
    return (at for at in own(function) if isinstance(at, ast.Call))


def _folder(makes: ast.Call) -> str | None:
    """Return the folder that is made, as it stands there."""
    if makes.args:
        return ast.unparse(makes.args[0])
    return ast.unparse(makes.func.value) if isinstance(makes.func, ast.Attribute) else None


def _alone(node: ast.AST, file: File) -> bool:
    """It runs on some ranks alone: behind a guard, or below one that sends the others on (`if not main: continue`)."""
    if rank_guard(node, file) is not None:
        return True
    return any(isinstance(p, ast.Return) or _is_left_above(p, child) for p, child in inside(node, file))


def _is_left_above(parent: ast.AST, child: ast.AST) -> bool:
    """Above ``child`` in its block, some ranks leave."""
    block = getattr(parent, "body", None)
    if not isinstance(block, list) or child not in block:
        return False
    above = (part for part in block[: block.index(child)] if isinstance(part, ast.If))
    return any(asks_rank(part.test) and leaves(part.body) for part in above)


def _is_waited_for(folder: str, function: ast.AST) -> bool:
    """A loop waits until the folder is there."""
    return any(isinstance(at, ast.While) and folder in ast.unparse(at.test) for at in own(function))


def _may_meet(call: ast.Call, file: File) -> bool:
    """The processes may meet in it."""
    called = function_called(call, file)
    return bool(_MEETS.search(tail_of(call))) or (called is not None and bool(_MEETS.search(ast.unparse(called))))


def _fills(call: ast.Call, folder: str, file: File) -> bool:
    """It writes a file whose path begins with the folder."""
    at = _FILLS.get(tail_of(call))
    if at is None or len(call.args) <= at:
        return False
    mode = (
        call.args[1].value
        if tail_of(call) == "open" and len(call.args) > 1 and isinstance(call.args[1], ast.Constant)
        else "w"
    )
    parts = (part for one in reached(call.args[at], file) for part in walk(one) if isinstance(part, ast.expr))
    return isinstance(mode, str) and bool(_MODES.search(mode)) and any(ast.unparse(part) == folder for part in parts)
