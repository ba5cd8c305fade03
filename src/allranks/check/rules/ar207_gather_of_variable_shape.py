"""AR207: tensors are gathered whose shape each process decides for itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.syntax import function_of, tail_of
from allranks.findings import Finding

_GATHERS = ("gather", "gather_for_metrics", "all_gather", "all_gather_into_tensor", "process_allgather")
_RECEIVERS = ("accelerator", "fabric", "distributed", "dist", "self", "multihost_utils", "idist")
_FINDS = ("nonzero", "masked_select", "unique", "argwhere", "flatnonzero")
_SAME = ("detach", "contiguous", "cpu", "to", "float", "long", "flatten")
_LENGTHS = ("pad", "shape", "size", "length", "object")  # whoever speaks of lengths has thought about them


class GatherOfVariableShape(LocalRule):
    """
    ## What it does
    Finds a gather of something whose shape depends on this process' data: rows chosen by a mask, or what `nonzero`,
    `unique` or `masked_select` finds.

    ## Why is this bad
    A gather of tensors needs one shape on all processes.

    ## What happens with N processes
    NCCL does not compare shapes: the job hangs, or rows are read from the wrong place. Gloo fails on some ranks.

    ## Known problems
    Lengths that are made equal in another function are not seen.

    ## Use instead
    `accelerator.pad_across_processes` before the gather, `gather_object` for few values, or reduce first and gather the
    result.
    """

    code, name, severity, row = "AR207", "gather-of-variable-shape", "warning", "collectives"
    cluster = "Processes send tensors of different lengths: a hang, or rows from the wrong place."
    advice = (
        "Pad to one length on all processes first (accelerator.pad_across_processes does), or reduce before the gather."
    )
    words = ("gather",)
    nodes = (ast.Call,)
    calls = _GATHERS
    bad = (
        """\
def step(accelerator, batch, outputs):
    found = outputs[outputs > 0]
    return accelerator.gather(found)  # <-- found
""",
    )
    good = (
        """\
import torch

def step(accelerator, batch, outputs, index):
    found = outputs[outputs > 0]
    found = accelerator.pad_across_processes(found, dim=0)
    found = accelerator.gather(found)
    rows = torch.gather(outputs, 1, index)
    return found, rows.gather(1, index), accelerator.gather(outputs[:, 0])
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
            return
        receiver = (file.qualified(node.func.value) or ast.unparse(node.func.value)).rpartition(".")[2].lstrip("_")
        function = function_of(node, file)
        if receiver not in _RECEIVERS or function is None:
            return
        before = (part for part in walk(function) if getattr(part, "lineno", node.lineno) < node.lineno)
        words = {word for part in (*before, *walk(node)) for word in _words(part)} - {"reshape", "pad_token_id"}
        thought = any(length in word for word in words if "batch" not in word for length in _LENGTHS)
        filled = receiver in ("distributed", "dist") and len(node.args) > 1
        sent = node.args[1] if filled else node.args[0]
        if thought and not isinstance(sent, ast.Subscript):  # what is selected in the call, nobody has made longer
            return
        if why := _varies(sent, function, node.lineno):
            yield self.local(file, node, f"{ast.unparse(sent)} is gathered, and {why}")


def _words(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Name):
        yield node.id


def _varies(node: ast.expr, function: ast.AST, line: int) -> str:
    """Return why the shape of an expression depends on the data of this process; empty if nothing says so."""
    if isinstance(node, ast.Subscript) and _is_mask(node.slice, function, line):
        return "a condition selects more rows on some ranks"
    if isinstance(node, ast.Tuple):
        return next(filter(None, (_varies(one, function, line) for one in node.elts)), "")
    if isinstance(node, ast.Call):
        called = tail_of(node)
        if called in _FINDS or (called == "generate" and node.keywords):  # as transformers does
            return f"what {called} finds has another length on each rank"
        if called in _SAME and isinstance(node.func, ast.Attribute):
            return _varies(node.func.value, function, line)
    if isinstance(node, ast.Name) and (value := _assigned(node.id, function, line)) is not None:
        return _varies(value, function, value.lineno)
    return ""


def _is_mask(key: ast.expr, function: ast.AST, line: int) -> bool:
    if isinstance(key, ast.Name):
        value = _assigned(key.id, function, line)
        return value is not None and _is_mask(value, function, value.lineno)
    is_bool = isinstance(key, ast.Call) and tail_of(key) == "bool"
    return is_bool or isinstance(key, ast.Compare) or _varies(key, function, line) != ""


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield targets and their values; of ``a, b = c, d`` each by itself."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value


def _assigned(name: str, function: ast.AST, before: int) -> ast.expr | None:
    """Return what was assigned last to a name in a function before a line."""
    found = [
        value
        for part in walk(function)
        if isinstance(part, ast.Assign) and part.lineno < before
        for target, value in _pairs(part)
        if isinstance(target, ast.Name) and target.id == name
    ]
    return max(found, key=lambda value: value.lineno, default=None)
