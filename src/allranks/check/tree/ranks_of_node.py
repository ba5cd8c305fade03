"""The rank on the node, by what it is made of or by its name; and where it is kept as if it were that in the job."""

from __future__ import annotations

import ast
import re

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.met_here import is_met_here
from allranks.check.tree.origins import origins, reached
from allranks.check.tree.syntax import blocks, name_of, tail_of, words_of

_LOCAL = re.compile(r"^(args\.|self\.)?_?(local_rank|LOCAL_RANK|local_process_index)$")
_KEPT = re.compile(r"^(global_|world_)?rank$", re.IGNORECASE)
_VARIABLES = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK")
_WORLDS = ("WORLD_SIZE", "SLURM_NTASKS", "SLURM_NPROCS", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")


def is_local(rank: ast.expr, file: File) -> bool:
    """The local rank, by what it is made of; if that is not known, by its name."""
    made = origins(rank, file)
    plain = rank.args[0] if isinstance(rank, ast.Call) and tail_of(rank) == "int" and rank.args else rank
    return made == {"local"} or (not made and any(map(_LOCAL.search, words_of(plain))))


def is_kept_as_rank(assign: ast.Assign, file: File) -> bool:
    """``rank = int(os.environ["LOCAL_RANK"])`` beside a number of processes that is that of the whole job."""
    target = assign.targets[0]
    if isinstance(target, ast.Subscript) and name_of(target.value, file) == "os.environ":
        return (
            isinstance(target.slice, ast.Constant)
            and target.slice.value == "RANK"
            and is_local(_plain(assign.value), file)
            and not is_met_here(assign, file)
            and not _is_world_of_host(file)
        )
    if not _KEPT.search(tail_of(target)) or origins(assign.value, file) != {"local"}:
        return False
    block = next((b for b in blocks(next(file.parents(assign))) if assign in b), [])
    if isinstance(assign.value, ast.Call) and (of := _asked_of(assign.value, "local_rank")):
        return any(isinstance(at, ast.Assign) and _asked_of(at.value, "size") == of for at in block)
    if not any(isinstance(at, ast.Constant) and at.value in _VARIABLES for at in walk(assign.value)):
        return False
    sizes = [at for at in block if isinstance(at, ast.Assign) and "world_size" in tail_of(at.targets[0]).lower()]
    return any(_asks_world(at.value) for at in sizes)


def _is_world_of_host(file: File) -> bool:
    """Its file, too, tells the processes that the job has as many as this host has devices."""
    stored = (
        at for at in file.kinds.get(ast.Assign, ()) if isinstance(at, ast.Assign) and _is_size(at.targets[0], file)
    )
    return any(
        isinstance(part, ast.Call) and tail_of(part) == "device_count"
        for at in stored
        for part in (*walk(at.value), *(inner for one in reached(at.value, file) for inner in walk(one)))
    )


def _is_size(target: ast.expr, file: File) -> bool:
    """``os.environ["WORLD_SIZE"]``"""
    if not isinstance(target, ast.Subscript) or name_of(target.value, file) != "os.environ":
        return False
    return isinstance(target.slice, ast.Constant) and target.slice.value == "WORLD_SIZE"


def _asked_of(call: ast.expr, what: str) -> str:
    """``hvd`` of ``hvd.local_rank()``: of its size the same library gives that of the whole job."""
    asks = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == what
    return ast.unparse(call.func.value) if asks else ""  # type: ignore[attr-defined]


def _plain(text: ast.expr) -> ast.expr:
    """``str(rank)``: rank"""
    return text.args[0] if isinstance(text, ast.Call) and tail_of(text) == "str" and text.args else text


def _asks_world(node: ast.AST) -> bool:
    return any(isinstance(at, ast.Constant) and at.value in _WORLDS for at in walk(node))
