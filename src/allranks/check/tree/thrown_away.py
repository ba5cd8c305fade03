"""Reductions whose result nobody keeps."""

from __future__ import annotations

import ast
import re

from allranks.check.sources.source import File
from allranks.check.tree.syntax import is_constant, keyword, name_of, rank_guard, speaks_of, tail_of

# These write the result into their argument.
IN_PLACE = ("torch.distributed.all_reduce", "torch.distributed.reduce")
# These return it, whatever object they are a method of.
RETURNING = {"allreduce": "hvd", "reduce": "accelerator", "gather_for_metrics": "accelerator"}
# These are functions that return it.
_FUNCTIONAL = ("torch.distributed.nn.functional.all_reduce", "torch.distributed.nn.all_reduce")
# What makes a new tensor, as a function of torch and as a method.
_NEW = frozenset(["tensor", "as_tensor", "stack", "cat", "sum", "mean", "max", "min", "norm", "sqrt"])
_NEW_METHODS = frozenset(
    [
        "clone",
        "cpu",
        "sum",
        "mean",
        "max",
        "min",
        "norm",
        "sqrt",
        "square",
        "pow",
        "mul",
        "div",
        "add",
        "sub",
        "float",
        "double",
    ]
)
_MEETS_ALONE = re.compile(r"(?i)dummy|warm_?up|placeholder")
# What keeps the tensor, or may do so.
_SAME = frozenset(["to", "cuda", "contiguous", "detach"])


def thrown_away(call: ast.Call, file: File) -> ast.expr | None:
    """Return the value of a reduction that is lost: it is a temporary one, or what the call returns is not kept.

    A reduction of a constant, or of what is called a dummy, is a warm-up, or made to meet the others; the sender of
    what one rank alone has keeps it.
    """
    name = name_of(call, file)
    tensor = call.args[0] if call.args else keyword(call, "tensor")
    if tensor is None or rank_guard(call, file) is not None or not any(map(_is_variable, ast.walk(tensor))):
        return None
    if speaks_of(tensor, _MEETS_ALONE):
        return None
    if name in IN_PLACE:
        return tensor if _is_temporary(tensor, file) else None
    kept = not isinstance(next(file.parents(call), None), ast.Expr)
    return tensor if not kept and _returns(call, name) else None


def _is_variable(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id not in ("torch", "np", "numpy", "dist")


def _returns(call: ast.Call, name: str) -> bool:
    owner = RETURNING.get(tail_of(call))
    if name in _FUNCTIONAL:
        return True
    if owner is None or not isinstance(call.func, ast.Attribute):
        return False
    return tail_of(call.func.value) == owner or (owner == "hvd" and name.startswith("horovod."))


def _is_temporary(tensor: ast.expr, file: File) -> bool:
    if isinstance(tensor, ast.BinOp):
        return True
    if not isinstance(tensor, ast.Call):
        return False
    of_torch = name_of(tensor, file).rpartition(".")[0] == "torch"
    if tail_of(tensor) in _NEW and of_torch:
        return bool(tensor.args) and not is_constant(tensor.args[0], None)
    if not isinstance(tensor.func, ast.Attribute) or of_torch:
        return False
    return tail_of(tensor) in _NEW_METHODS or (tail_of(tensor) in _SAME and _is_temporary(tensor.func.value, file))
