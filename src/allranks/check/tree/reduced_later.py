"""Who leaves because a number of his own is zero, when he was to reduce it over all processes; or reduces it only then.

What goes into a reduction differs from process to process: else nobody would reduce it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.sources.source import File
from allranks.check.tree.skips import calls_in
from allranks.check.tree.syntax import Function, asks_rank, function_of, leaves, own, tail_of, variables

_REDUCES = re.compile(r"^_?(all_?reduce(_sum|_mean)?|reduce_(sum|mean|tensor)|all_?gather|gather_for_metrics)$")
_MAKES = ("sum", "item", "mean", "float", "int", "detach", "abs", "max")
# Numbers that all processes have alike, and what of a tensor says nothing of its contents.
_ALIKE = re.compile(
    r"(?i)(^|_)(idx|index|steps?|iter|epochs?|rank|world|size|dst|src|level|depth|dims?|ndim|stage)(_|$)"
)
# What all processes have alike: the parts of one model.
_OF_MODEL = re.compile(r"(?i)grad|param|tensor|bucket|handle|module|layer|key|buffer|flat")


def leaves_before(branch: ast.If | ast.Assert, file: File) -> str:
    """Return the variable whose value lets a process leave before it is reduced; empty if there is none."""
    function = function_of(branch, file)
    if function is None or (isinstance(branch, ast.If) and not (leaves(branch.body) and not branch.orelse)):
        return ""
    name = _asked(branch.test)
    if not name or _ALIKE.search(name) or asks_rank(branch.test):
        return ""
    reductions = list(_reductions(function))
    ends = branch.end_lineno or branch.lineno
    if any(call.lineno < branch.lineno and name in variables(call) for call in reductions):
        return ""
    named = {name} | {
        target.id
        for at in own(function)
        if isinstance(at, ast.Assign) and at.lineno > ends and isinstance(at.value, ast.Call) and _packs(at.value, name)
        for target in at.targets
        if isinstance(target, ast.Name)
    }
    later = (call for call in reductions if call.lineno > ends and call.args)
    return name if any(isinstance(call.args[0], ast.Name) and call.args[0].id in named for call in later) else ""


def meets_if_any(branch: ast.If, file: File) -> tuple[ast.Call, str] | None:
    """Return the reduction that a process makes only if it has something to put into it, and the variable that says
    so."""
    function = function_of(branch, file)
    name = _counted(branch.test)
    if function is None or not name or _ALIKE.search(name) or _OF_MODEL.search(name) or asks_rank(branch.test):
        return None
    if any(call.lineno < branch.lineno and name in variables(call) for call in _reductions(function)):
        return None
    if any(_REDUCES.search(tail_of(call)) for call in calls_in(branch.orelse)):
        return None
    named = {name, *_packed(function, name, branch.end_lineno or branch.lineno)}
    found = (call for call in calls_in(branch.body) if _REDUCES.search(tail_of(call)) and call.args)
    call = next((call for call in found if isinstance(call.args[0], ast.Name) and call.args[0].id in named), None)
    return (call, name) if call is not None else None


def _counted(test: ast.expr) -> str:
    """``len(found) > 0``, ``count.item() > 0``"""
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Gt | ast.NotEq)):
        return ""
    zero = test.comparators[0]
    if not (isinstance(zero, ast.Constant) and type(zero.value) is int and zero.value == 0):
        return ""
    if isinstance(test.left, ast.Call) and tail_of(test.left) == "len" and test.left.args:
        return _number(test.left.args[0])
    return _number(test.left)


def _packed(function: Function, name: str, before: int) -> set[str]:
    """Return what is made of a number, or a list of them, above a line."""
    return {
        target.id
        for at in own(function)
        if isinstance(at, ast.Assign) and at.lineno <= before and isinstance(at.value, ast.Call)
        if _packs(at.value, name)
        for target in at.targets
        if isinstance(target, ast.Name)
    }


def _asked(test: ast.expr) -> str:
    """Return the variable that a condition finds zero, or finds not to be a number."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _asked(test.operand) if isinstance(test.operand, ast.Call | ast.Compare) else ""
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        zero = isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value in (0, 0.0)
        return _number(test.left) if zero and type(test.comparators[0].value) is not bool else ""  # type: ignore[attr-defined]
    if isinstance(test, ast.Call) and tail_of(test) in ("isnan", "isinf", "isfinite"):
        return _number(test.args[0]) if test.args else ""
    return ""


def _number(node: ast.expr) -> str:
    """``total``, ``mask.sum()``, ``loss.item()``"""
    if isinstance(node, ast.Call) and tail_of(node) in _MAKES:
        inner = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0] if node.args else None
        return _number(inner) if inner is not None else ""
    return node.id if isinstance(node, ast.Name) else ""


def _packs(value: ast.Call, name: str) -> bool:
    """``torch.tensor([total, count])``"""
    return tail_of(value) in ("tensor", "as_tensor", "Tensor", "FloatTensor", "stack", "array") and name in variables(
        value
    )


def _reductions(function: Function) -> Iterator[ast.Call]:
    return (at for at in own(function) if isinstance(at, ast.Call) and _REDUCES.search(tail_of(at)))
