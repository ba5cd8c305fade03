"""A folder that rank 0 makes, and that every rank fills in the same function before it may be there."""

from __future__ import annotations

import ast
import re

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.handovers import Handover, Meets, met_on_both_sides
from allranks.check.tree.one_rank import on_one
from allranks.check.tree.origins import function_called, reached
from allranks.check.tree.syntax import (
    asks_rank,
    calls_of,
    function_of,
    inside,
    keyword,
    leaves,
    own,
    rank_guard,
    tail_of,
)

_MAKES = ("makedirs", "mkdir")
# What fills a folder, with the position of the path.
_FILLS = {
    "save": 1,
    "save_file": 1,
    "save_image": 1,
    **dict.fromkeys(("savez", "savetxt", "savefig", "open", "File", "FileHandler", "RotatingFileHandler"), 0),
    **dict.fromkeys(("to_csv", "to_parquet", "to_json", "to_pickle"), 0),
}
_MODES = re.compile(r"^[wax]")
_NEAR = 60


def filled_early(makes: ast.Call, file: File, meets: Meets) -> Handover | None:
    """Return what fills the folder that ``makes`` makes on one rank, if the ranks may not have met before."""
    function, folder = function_of(makes, file) or file.tree, _folder(makes)
    if (
        tail_of(makes) not in _MAKES
        or folder is None
        or on_one(makes, file) is None
        or _is_waited_for(folder, function)
    ):
        return None
    if met_on_both_sides(makes, file, meets) or _is_called_by_one(function, file):
        return None
    calls = (at for at in own(function) if isinstance(at, ast.Call))
    for call in sorted(calls, key=lambda at: at.lineno):
        if call.lineno > makes.lineno + _NEAR:
            return None
        if call.lineno <= (makes.end_lineno or makes.lineno) or _alone(call, file):
            continue
        if meets(call) or tail_of(call) in _MAKES:
            return None
        if _fills(call, folder, file):
            what = f"every rank writes into {folder} while rank 0 may not have made it yet"
            return Handover(makes, call, what, sure=True)
    return None


def _is_called_by_one(function: ast.AST, file: File) -> bool:
    """All calls of it in this file ask for the rank before: which it is, or whether there are others."""
    name = getattr(function, "name", "")
    calls = [at for at in calls_of(file).get(name, ()) if function_called(at, file) is function]
    guards = (
        [p.test for p, child in inside(at, file) if isinstance(p, ast.If) and child is not p.test] for at in calls
    )
    return bool(calls) and all(
        any("rank" in ast.unparse(test) or asks_rank(test) for test in tests) for tests in guards
    )


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


def _fills(call: ast.Call, folder: str, file: File) -> bool:
    """It writes a file whose path begins with the folder."""
    at = _FILLS.get(tail_of(call))
    logs = keyword(call, "filename") if tail_of(call) == "basicConfig" else None
    path = logs if logs is not None or at is None or len(call.args) <= at else call.args[at]
    if path is None:
        return False
    told = call.args[1] if tail_of(call) in ("open", "File") and len(call.args) > 1 else None
    opens = told is None and tail_of(call) in ("open", "File")
    mode = told.value if isinstance(told, ast.Constant) else "" if opens else "w"
    parts = (part for one in reached(path, file) for part in walk(one) if isinstance(part, ast.expr))
    return isinstance(mode, str) and bool(_MODES.search(mode)) and any(ast.unparse(part) == folder for part in parts)
