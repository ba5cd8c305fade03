"""A collective that hangs on the loss of this process' batch, in the loop that runs the backward pass of it."""

from __future__ import annotations

import ast

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.own_scores import meeting_in
from allranks.check.tree.skips import AGREES, agreed, calls_in, names_in
from allranks.check.tree.syntax import asks_rank, function_of, inside, tail_of


def meets_by_loss(branch: ast.If, file: File) -> tuple[ast.Call, str] | None:
    """Return the call that all processes must make which hangs on a loss that only this one has, and its name."""
    loops = [above for above, _ in inside(branch, file) if isinstance(above, ast.For | ast.While)]
    meeting = meeting_in(branch.body, file) if loops else None
    if meeting is None or asks_rank(branch.test) or not _is_of_numbers(branch.test):
        return None
    asked = names_in(branch.test)
    told = agreed(function_of(branch, file) or file.tree) - agreed(branch)
    if any(AGREES.search(name) for name in asked) or asked & told:
        return None
    name = next(iter(sorted(asked & _losses(loops[0]))), None)
    return (meeting, name) if name is not None else None


def _is_of_numbers(test: ast.expr) -> bool:
    """Whether a condition asks how large something is, or whether it is a number: not whether it is there."""
    orders = (ast.Lt, ast.Gt, ast.LtE, ast.GtE)
    return any(
        (isinstance(at, ast.Compare) and isinstance(at.ops[0], orders))
        or (isinstance(at, ast.Call) and tail_of(at) in ("isnan", "isinf", "isfinite", "any", "all"))
        for at in walk(test)
    )


def _losses(loop: ast.AST) -> set[str]:
    """Return what a loop assigns, runs the backward pass of, and the numbers that it makes of that."""
    made = {
        name for at in walk(loop) if isinstance(at, ast.Assign) for target in at.targets for name in names_in(target)
    }
    passes = [call for call in calls_in((loop,)) if tail_of(call) == "backward"]
    found = made & {name for call in passes for name in names_in(call)}
    for at in walk(loop):
        if isinstance(at, ast.Assign) and names_in(at.value) & found and _is_read(at.value):
            found |= {name for target in at.targets for name in names_in(target)}
    return found


def _is_read(value: ast.expr) -> bool:
    """``loss.item()``, ``float(loss)``: nothing else is called on the way."""
    calls = [tail_of(at) for at in walk(value) if isinstance(at, ast.Call)]
    return all(
        name in ("item", "float", "detach", "cpu", "mean", "sum", "isnan", "isinf", "isfinite") for name in calls
    )
