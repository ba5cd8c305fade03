"""Loops over the part that a process of JAX is dealt, each round of which meets the others in a step."""

from __future__ import annotations

import ast
import re

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.drained import EVEN
from allranks.check.tree.mapped import MAPS, mapped
from allranks.check.tree.origins import function_called, values
from allranks.check.tree.splits import Split
from allranks.check.tree.syntax import Function, function_of, name_of, own, tail_of

_MEETS = re.compile(r"^(pmean|psum|pmax|pmin|all_gather|psum_scatter)$")
# Calls of a step under pmap, as it is handed to a function, and of what takes the copy of the first device.
_NAMED = re.compile(r"^(p_|pmap_|pmapped_|parallel_)|_pmap(ped)?$")
_FIRST = ("unreplicate",)
_ALIKE = (*EVEN, " // ", " % ", "divmod", "zip(", "islice", "allgather", "array_split")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def is_run_apart(split: Split, file: File) -> bool:
    """A loop goes through it, or through what a generator makes of it, and all processes are to take each step."""
    if "pmap" not in file.text and "unreplicate" not in file.text:
        return False
    loops = [at for kind in (ast.For, ast.AsyncFor) for at in file.kinds.get(kind, ()) if isinstance(at, ast.For)]
    return any(_is_over(loop, split, file) and _steps(loop, file) and not _is_even(loop, split, file) for loop in loops)


def _is_over(loop: ast.For, split: Split, file: File) -> bool:
    """``for x in files``, ``for x in batches(own_files(files), 8)``"""
    giver = function_of(split.node, file)
    gives = isinstance(giver, _FUNCTIONS) and any(_returns(at, split.node) for at in own(giver))
    for at in walk(loop.iter):
        if at is split.node:
            return True
        if gives and isinstance(at, ast.Call) and function_called(at, file) is giver:
            return True
        if isinstance(at, ast.Name) and any(split.node is v for v in values(at, file)):
            return True
    return False


def _returns(node: ast.AST, part: ast.AST) -> bool:
    return isinstance(node, ast.Return) and node.value is part


def _steps(loop: ast.For, file: File) -> bool:
    if any(isinstance(at, ast.Break) for at in own(loop)):
        return False
    return any(isinstance(at, ast.Call) and _meets(at, file) for at in own(loop))


def _meets(call: ast.Call, file: File) -> bool:
    """It runs a step under pmap that averages or adds up over the devices."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    if not name:
        return False
    made = [v for v in values(call.func, file) if isinstance(v, ast.Call) and name_of(v, file) in MAPS]
    decorated = function_called(call, file)
    steps = [function for one in made if (function := mapped(one, file)) is not None]
    steps += (
        [decorated] if decorated is not None and any("pmap" in ast.unparse(d) for d in decorated.decorator_list) else []
    )
    if steps:
        return any(bool(_MEETS.search(tail_of(at))) for step in steps for at in walk(step) if isinstance(at, ast.Call))
    above = next(file.parents(call), None)
    return bool(_NAMED.search(name)) and isinstance(above, ast.Call) and tail_of(above) in _FIRST


def _is_even(loop: ast.For, split: Split, file: File) -> bool:
    """Something on the way speaks of equal numbers."""
    places: list[Function | ast.For] = [loop]
    places += [f for at in (loop, split.node) if (f := function_of(at, file)) is not None]
    calls = (at for at in walk(loop.iter) if isinstance(at, ast.Call))
    places += [function for call in calls if (function := function_called(call, file)) is not None]
    texts = "\n".join(map(ast.unparse, places))
    return any(word in texts for word in _ALIKE)
