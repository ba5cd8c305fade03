"""Of which world a rank, or a number of ranks, is: all processes, or a group of them."""

from __future__ import annotations

import ast
import re
from typing import Literal, TypeAlias

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import RANK_KINDS, origins, values
from allranks.check.tree.syntax import name_of, tail_of

World: TypeAlias = Literal["all", "group"]
# Names of a place in the groups that go through the same data, or of how many there are.
_GROUP = re.compile(
    r"(^|_)(dp|ddp|data_?parallel|tp|pp|cp|sp|mp|(tensor|model|pipeline|context|sequence)\w*_?parallel)(_|$)", re.I
)
_ASKS_ALL = (
    *("torch.distributed.get_world_size", "torch.distributed.get_rank", "jax.process_count", "jax.process_index"),
    *("horovod.torch.size", "horovod.torch.rank"),
)
_VARIABLES = ("WORLD_SIZE", "RANK", "SLURM_NTASKS", "SLURM_PROCID")
_OF_MESH = ("get_local_rank", "size", "get_group_rank")


def world_of(number: ast.expr, file: File) -> World | None:
    """Return whose rank or number of ranks it is, where that is certain."""
    made = _stored(number, file) if isinstance(number, ast.Name | ast.Attribute) else []
    if len(made) > 1:
        worlds = {world_of(one, file) for one in made if not isinstance(one, ast.Constant)}
        return worlds.pop() if len(worlds) == 1 else None
    if made and made[0] is not number:
        return world_of(made[0], file)
    if isinstance(number, ast.Call):
        return _of_call(number, file)
    return "group" if isinstance(number, ast.Name | ast.Attribute) and _GROUP.search(tail_of(number)) else None


def _stored(number: ast.expr, file: File) -> list[ast.expr]:
    """Return what is stored under a name: the last before it in a block around, or else whatever there is."""
    found, blocks = values(number, file), set(map(id, file.parents(number)))
    before = [one for one in found if one.lineno < number.lineno and id(_block(one, file)) in blocks]
    return before[-1:] if before and isinstance(number, ast.Name) else found


def _block(value: ast.expr, file: File) -> ast.AST | None:
    above = (parent for parent in file.parents(value))
    return next((next(file.parents(at), None) for at in above if isinstance(at, ast.stmt)), None)


def _of_call(call: ast.Call, file: File) -> World | None:
    if _GROUP.search(tail_of(call)):
        return "group"
    if name_of(call, file) in _ASKS_ALL:
        given = [*call.args, *(k.value for k in call.keywords)]
        return "all" if all(isinstance(at, ast.Constant) for at in given) else _of_group(given)
    if tail_of(call) in _OF_MESH and isinstance(call.func, ast.Attribute):
        dims = [at.value for at in walk(call) if isinstance(at, ast.Constant) and isinstance(at.value, str)]
        named = "mesh" in ast.unparse(call.func.value).lower()
        return "group" if named and (any(map(_GROUP.search, dims)) or _GROUP.search(tail_of(call.func.value))) else None
    asked = (at.value for at in walk(call) if isinstance(at, ast.Constant))
    return "all" if any(variable in _VARIABLES for variable in asked) else None


def _of_group(given: list[ast.expr]) -> World | None:
    return "group" if any(_GROUP.search(tail_of(at).removesuffix("_group")) for at in given) else None


def swapped(rank: ast.expr, size: ast.expr, file: File) -> bool:
    """Whether what is given as the rank is a number of ranks, and the other way round."""
    of_rank, of_size = origins(rank, file), origins(size, file)
    return of_rank == {"size"} and bool(of_size & RANK_KINDS) and "size" not in of_size
