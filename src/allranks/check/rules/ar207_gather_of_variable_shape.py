"""AR207: tensors are gathered whose shape each process decides for itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.nodes import walk
from allranks.check.rule import Example, LocalRule
from allranks.check.source import File
from allranks.findings import Finding

_GATHERS = frozenset(["gather", "gather_for_metrics", "all_gather", "all_gather_into_tensor", "allgather"])
_RECEIVERS = re.compile(r"accelerator|fabric|distributed|\bdist\b|comm|strategy|hvd|trainer|^self$")
_LONG = re.compile(r"attention_mask|input_ids|logits$|token_ids|^tokens|generated|completion_ids|sequences")
_REDUCES = frozenset(
    ["mean", "sum", "max", "min", "argmax", "item", "numel", "norm", "count_nonzero", "size", "any", "all"]
)
_VARIES = frozenset(["nonzero", "masked_select", "unique", "argwhere", "flatnonzero"])


class GatherOfVariableShape(LocalRule):
    """
    ## What it does
    Finds a gather of something whose shape depends on this process' data: rows chosen by a mask, `nonzero`, `unique`,
    the concatenation of a list, token ids or logits as long as the longest text of this batch.

    ## Why is this bad
    A gather of tensors needs one shape on all processes.

    ## What happens with N processes
    NCCL does not compare shapes: the job hangs, or rows are read from the wrong place. Gloo fails on some ranks.

    ## Known problems
    Whether batches are padded to one length, only the data tells: the rule is opt-in.

    ## Use instead
    `accelerator.pad_across_processes` before the gather, `gather_object` for few values, or reduce first and gather the
    result.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR207", "gather-of-variable-shape", "warning", "collectives"
    default = False
    cluster = "Processes send tensors of different lengths: a hang, or rows from the wrong place."
    advice = "Pad across processes first (accelerator.pad_across_processes), or reduce before the gather."
    words = ("gather",)
    nodes = (ast.Call,)
    calls = _GATHERS
    bad = (
        Example(
            {
                "train.py": """\
def step(accelerator, batch, outputs):
    found = outputs[outputs > 0]
    found = accelerator.gather(found)
    tokens = accelerator.gather_for_metrics(batch["attention_mask"]).sum()
    return found, tokens
""",
            },
            at=(3, 4),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import torch

def step(accelerator, batch, outputs, index):
    found = outputs[outputs > 0]
    found = accelerator.pad_across_processes(found, dim=0)
    found = accelerator.gather(found)
    tokens = accelerator.gather_for_metrics(batch["attention_mask"].sum())
    rows = torch.gather(outputs, 1, index)
    return found, tokens, rows.gather(1, index)
""",
            },
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        assert isinstance(node, ast.Call)
        function = node.func
        if not isinstance(function, ast.Attribute) or function.attr not in _GATHERS or not node.args:
            return
        receiver = file.qualified(function.value) or ast.unparse(function.value)
        if not _RECEIVERS.search(receiver.rpartition(".")[2]) and receiver != "torch.distributed":
            return
        sent = node.args[-1] if function.attr.startswith("all_gather") and len(node.args) > 1 else node.args[0]
        scope = next((p for p in file.parents(node) if isinstance(p, ast.FunctionDef)), file.tree)
        if not any(isinstance(part, ast.Attribute) and part.attr.startswith("pad_") for part in walk(scope)):
            why = _varies(sent, scope, node.lineno)
            if why:
                yield self.local(
                    file, node, f"{ast.unparse(sent)} is gathered, and its shape is this process' own: {why}"
                )


def _varies(node: ast.expr, scope: ast.AST, line: int, depth: int = 2) -> str:
    """Return why the shape of ``node`` depends on the data of this process; empty if nothing says so."""
    if isinstance(node, ast.Tuple | ast.List):
        return next((why for why in (_varies(e, scope, line, depth) for e in node.elts) if why), "")
    if isinstance(node, ast.Subscript):
        if isinstance(node.slice, ast.Compare):
            return "rows are chosen by a condition"
        key = node.slice.value if isinstance(node.slice, ast.Constant) else ""
        return "as long as the longest text here" if isinstance(key, str) and _LONG.search(key) else ""
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if called in _VARIES:
            return f"what {called} finds"
        if called in ("detach", "contiguous", "cpu", "to", "float", "long") and isinstance(node.func, ast.Attribute):
            return _varies(node.func.value, scope, line, depth)
        return ""
    if isinstance(node, ast.Name):
        value = _assigned(node.id, scope, line) if depth else None
        why = _varies(value, scope, line, depth - 1) if value is not None else ""
        reduced = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _REDUCES
        return why or ("as long as the longest text here" if _LONG.search(node.id) and not reduced else "")
    return ""


def _assigned(name: str, scope: ast.AST, line: int) -> ast.expr | None:
    found = [
        part
        for part in walk(scope)
        if isinstance(part, ast.Assign)
        and part.lineno < line
        and any(isinstance(t, ast.Name) and t.id == name for t in part.targets)
    ]
    return max(found, key=lambda part: part.lineno).value if found else None
