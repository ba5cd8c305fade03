"""AR704: a loop over a set decides the order of collectives."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.syntax import tail_of
from allranks.findings import Finding

_MEETS = frozenset(
    [
        *("all_reduce", "all_gather", "all_gather_object", "broadcast", "broadcast_object_list", "reduce", "barrier"),
        *("new_group", "reduce_scatter", "all_to_all", "process_allgather", "sync_global_devices", "gather_object"),
        *("broadcast_one_to_all", "allreduce", "allgather", "wait_for_everyone", "all_gather_into_tensor"),
    ]
)


class HashOrderInCollectiveOrder(LocalRule):
    """
    ## What it does
    Finds a loop over a set whose body calls a collective.

    ## Why is this bad
    Python orders the strings of a set by a hash that differs from process to process (PYTHONHASHSEED).

    ## What happens with N processes
    Collectives are matched by order: the sum of one metric on rank 0 meets the sum of another on rank 1. Shapes are
    often alike, so nothing fails.

    ## Known problems
    Sets of integers have the same order everywhere; they are told apart only where the code shows it.

    No fault of this kind has been seen in real code yet; the order of a set of strings differs from process to
    process, by the contract of Python.

    ## Use instead
    `for name in sorted(names):`.

    ## Fix safety
    There is no automatic fix: not everything can be sorted.
    """

    code, name, severity, row = "AR704", "hash-order-in-collective-order", "error", "collectives"
    cluster = "Each process has its own order, so different things are reduced together, without an error."
    advice = "Loop over sorted(...) of it."
    words = tuple(_MEETS)
    nodes = (ast.For,)
    bad = (
        Example(
            {
                "train.py": """\
import torch.distributed as dist

def reduce_all(metrics, more):
    names = set(metrics) | set(more)
    for name in names:
        dist.all_reduce(metrics[name])
""",
            },
            at=(5,),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist

def reduce_all(metrics):
    for name in {key.lower() for key in metrics}:
        dist.all_reduce(metrics[name])
""",
            },
            at=(4,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import torch.distributed as dist

def reduce_all(metrics, ranks):
    names = set(metrics)
    for name in sorted(names):
        dist.all_reduce(metrics[name])
    for name in names:
        print(name)
    for size in {1, 2, 4}:
        dist.new_group(list(range(size)))
    for name in metrics:
        dist.all_reduce(metrics[name])
""",
            },
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        assert isinstance(node, ast.For)
        if not any(_meets(part) for statement in node.body for part in walk(statement)):
            return
        source: ast.expr = node.iter
        if isinstance(source, ast.Call) and tail_of(source) in ("enumerate", "list", "tuple") and source.args:
            source = source.args[0]
        if isinstance(source, ast.Name):
            source = _assigned(source.id, node, file) or source
        if _is_set(source):
            yield self.local(file, node.iter, f"a set decides in which order collectives run: {ast.unparse(node.iter)}")


def _meets(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and tail_of(node) in _MEETS


def _assigned(name: str, node: ast.AST, file: File) -> ast.expr | None:
    """Return what ``name`` was last given before ``node``, in the same function."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    scope = next((above for above in file.parents(node) if isinstance(above, functions)), file.tree)
    found = [
        part
        for part in walk(scope)
        if isinstance(part, ast.Assign)
        and part.lineno < getattr(node, "lineno", 0)
        and any(isinstance(t, ast.Name) and t.id == name for t in part.targets)
    ]
    return max(found, key=lambda part: part.lineno).value if found else None


def _is_set(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
        return _is_set(node.left) or _is_set(node.right)
    if isinstance(node, ast.Set):
        return not all(isinstance(e, ast.Constant) and isinstance(e.value, int) for e in node.elts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset"):
        inside = node.args[0] if node.args else node
        return not (isinstance(inside, ast.Call) and tail_of(inside) == "range")
    return isinstance(node, ast.SetComp)
