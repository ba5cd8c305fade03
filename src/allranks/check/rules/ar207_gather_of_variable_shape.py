"""AR207: tensors are gathered whose shape each process decides for itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.picked_rows import is_generated, is_levelled, is_picked
from allranks.findings import Finding

_GATHERS = frozenset(
    ["gather", "gather_for_metrics", "all_gather", "all_gather_into_tensor", "allgather", "process_allgather"]
)
_RECEIVERS = re.compile(
    r"accelerator|^acc$|fabric|distributed|\bi?dist\b|comm|strategy|hvd|trainer|^self$|^multihost_utils$"
)
_TORCH = re.compile(r"(^|\.)(dist|distributed|comm)$")
_OF_ANY_LENGTH = re.compile(r"comm$|hvd|horovod|mpi", re.IGNORECASE)  # objects, or rows of which some may have more
_LONG = re.compile(r"attention_mask|input_ids|logits$|token_ids|^tokens|generated|completion_ids|sequences")
# They fill buffers, all of one length; those whose names end in v are told lengths.
_OF_BUFFERS = frozenset(["Gather", "Allgather"])
_REDUCES = frozenset(
    ["mean", "sum", "max", "min", "argmax", "item", "numel", "norm", "count_nonzero", "size", "any", "all"]
)
_VARIES = frozenset(["nonzero", "masked_select", "unique", "argwhere", "flatnonzero"])


class GatherOfVariableShape(LocalRule):
    """
    ## What it does
    Finds a gather of something whose shape depends on this process' data. Examples are rows chosen by a mask,
    `nonzero`, `unique`, the concatenation of a list, and token ids or logits as long as the longest text of this batch.

    ## Why is this bad
    A gather of tensors needs one shape on all processes.

    ## What happens with N processes
    NCCL does not compare shapes: the job hangs, or rows are read from the wrong place. Gloo fails on some ranks.

    ## Known problems
    Only the data shows whether batches are padded to one length. Confidence is low for everything except rows that a
    condition selects.

    ## Use instead
    `accelerator.pad_across_processes` before the gather, `gather_object` for few values, or reduce first and gather the
    result.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR207", "gather-of-variable-shape", "warning", "collectives"
    cluster = "Processes send tensors of different lengths: a hang, or rows from the wrong place."
    advice = (
        "Pad to one length on all processes first (accelerator.pad_across_processes does), or reduce before the gather."
    )
    words = ("gather", "Gather(")
    nodes = (ast.Call,)
    calls = _GATHERS | _OF_BUFFERS
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
        Example(
            {
                "module.py": """\
import torch

class Net:
    def on_validation_epoch_end(self):
        feats, labels = (torch.cat(parts) for parts in zip(*self.rows))
        known = labels >= 0
        feats, labels = feats[known], labels[known]
        return self.all_gather(feats).reshape(-1, feats.shape[-1]), self.all_gather(labels)

def answers(accelerator, model, loader):
    for batch in loader:
        made = model.generate(batch["prompt"], max_new_tokens=64)
        made, ids = accelerator.gather_for_metrics((made, batch["id"]))
        yield made, ids

def worst(dist, errors, rows):
    top = (errors > errors.median()).nonzero().flatten()
    dist.all_gather(rows, errors[top])

def users(dist, parts, ids, known):
    dist.all_gather(parts, torch.cat([ids.unique(), known]))
""",
            },
            at=(8, 8, 13, 18, 21),
        ),
        Example(
            {
                "outliers.py": """\
class Detector:
    def select(self, x):
        distance = abs(x - x.mean())
        return x[distance > self.cut]

    def collect(self, x, out):
        far = self.select(x)
        self.comm.Gather(far, out, root=0)
        self.comm.Allgather([x[x > 0], MPI.DOUBLE], out)
        return self.comm.gather(far)
""",
            },
            at=(8, 9),
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
        Example(
            {
                "rows.py": """\
import torch
import torch.distributed as dist

def rows(x, mask, world):
    x = x[mask > 0]
    lengths = [torch.zeros(1) for _ in range(world)]
    dist.all_gather(lengths, torch.tensor([x.shape[0]]))
    parts = [x.new_zeros(int(length)) for length in lengths]
    dist.all_gather(parts, x)
    return torch.cat(parts)

def first(accelerator, outputs):
    return accelerator.gather(outputs[:, 0])

def samples(model, multihost_utils, params, prompt):
    made = model.generate(params, prompt)
    return multihost_utils.process_allgather(made, tiled=True)
""",
            },
        ),
    )

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        assert isinstance(node, ast.Call)
        function = node.func
        if not isinstance(function, ast.Attribute) or function.attr not in self.calls or not node.args:
            return
        receiver = file.qualified(function.value) or ast.unparse(function.value)
        if not _RECEIVERS.search(receiver.rpartition(".")[2]) and receiver != "torch.distributed":
            return
        told = len(node.args) > 1 and function.attr.startswith("all_gather") and _TORCH.search(receiver)
        sent = node.args[1] if told else node.args[0]
        if isinstance(sent, ast.List | ast.Tuple) and sent.elts and function.attr in _OF_BUFFERS:
            sent = sent.elts[0]
        scope = next((p for p in file.parents(node) if isinstance(p, ast.FunctionDef)), file.tree)
        # what JAX compiles has one length
        made = function.attr != "process_allgather" and is_generated(sent, scope)
        if made or is_picked(sent, scope, file):
            of_any = _OF_ANY_LENGTH.search(receiver) and function.attr not in _OF_BUFFERS
            if is_levelled(scope) or of_any:
                return
            why = (
                "its length is that of the longest text of this process"
                if made
                else "a condition selects more rows on some"
            )
            yield self.local(file, node, f"{ast.unparse(sent)} is gathered, and {why}")
        elif not any(isinstance(part, ast.Attribute) and part.attr.startswith("pad_") for part in walk(scope)):
            why = _varies(sent, scope, node.lineno)
            if why:
                says = f"{ast.unparse(sent)} is gathered, and its shape differs from process to process: {why}"
                yield replace(self.local(file, node, says), confidence="low")


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
