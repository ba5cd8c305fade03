"""AR704: a loop over a set decides the order of collectives."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tables.collectives import OF_MPI
from allranks.check.tree.origins import function_called, latest
from allranks.check.tree.syntax import distributed, own, rank_guard, speaks_of, tail_of
from allranks.findings import Finding

_MEETS = frozenset(
    [
        *("all_reduce", "all_gather", "all_gather_object", "broadcast", "broadcast_object_list", "reduce", "barrier"),
        *("new_group", "reduce_scatter", "all_to_all", "process_allgather", "sync_global_devices", "gather_object"),
        *(*OF_MPI, "broadcast_one_to_all", "allreduce", "allgather", "wait_for_everyone", "all_gather_into_tensor"),
    ]
)
# A method that meets by its name; what keeps an order as it comes; what numbers are called, which have one order.
_SYNCS = re.compile(
    r"^_?(sync|all_?reduce|all_?gather|broadcast)_\w*(stats|statistics|state|grads?|gradients|params?|parameters|metrics?|tensors?|buffers|weights)$"
)
_KEEP = ("enumerate", "list", "tuple", "reversed", "tqdm", "iter")
_NUMBERS = re.compile(r"(?i)^range$|rank|size|(^|_)(idx|index|indices|ids?|steps?|layers?)$|num|degree")
_DEEPEST = 5


class HashOrderInCollectiveOrder(LocalRule):
    """
    ## What it does
    Finds a loop over a set, or over a list made of one, whose body calls a collective. Also a set as argument of a
    method that, by its name, synchronizes its elements.

    ## Why is this bad
    Python orders the strings of a set by a hash that differs from process to process (PYTHONHASHSEED).

    ## What happens with N processes
    Collectives are matched by order: the sum of one metric on rank 0 matches the sum of another on rank 1. Shapes are
    often alike, so nothing fails.

    ## Known problems
    Sets of integers have the same order everywhere; they are recognised only if the code shows it.

    ## Use instead
    `for name in sorted(names):`.

    ## Fix safety
    There is no automatic fix: not everything can be sorted.
    """

    code, name, severity, row = "AR704", "hash-order-in-collective-order", "error", "collectives"
    cluster = "Each process has its own order, so different things are reduced together, without an error."
    advice = "Loop over sorted(...) of it."
    words = (*_MEETS, "sync_")
    nodes = (ast.For, ast.ListComp, ast.Call)
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

class Observers:
    def __init__(self, names):
        self.names = set(names)

    def synchronize(self, modules, old, new):
        for name in self.names:
            dist.broadcast(self.weights[name], 0)
        for module in set(modules):
            module.observer.sync_activation_stats()
        self.sync_statistics({module for module in modules if module.ready})
        return [dist.all_reduce(new[key]) for key in list(old.keys() & new.keys())]
""",
            },
            at=(8, 10, 12, 13),
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
        Example(
            {
                "model.py": """\
from mpi4py import MPI

class Model:
    def trainable(self):
        return set(self.params) - self.frozen

    def sync(self, comm, grads):
        for name in self.trainable():
            comm.Allreduce(MPI.IN_PLACE, grads[name])
""",
            },
            at=(8,),
        ),
        Example(
            {
                "meters.py": """\
import torch.distributed as dist

class Meters:
    def __init__(self):
        self.sums = {}
        self.synced = set()

    def add(self, name, value):
        self.sums[name] = value
        self.synced.add(name)

    def reduce(self):
        for name in self.synced:
            dist.all_reduce(self.sums[name])
""",
            },
            at=(13,),
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

def groups(ranks):
    first = set()
    for rank in ranks:
        first.add(rank)
    for rank in first:
        dist.new_group([rank])
""",
            },
        ),
    )

    def applies(self, file: File) -> bool:
        return not file.is_test and (distributed(file) or "is_distributed" in file.text)

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.Call):
            for given in node.args if _meets(node, file) and not _MEETS & {tail_of(node)} else ():
                if _is_unordered(given, file):
                    what = f"{tail_of(node)} goes by the order of a set: {ast.unparse(given)}"
                    yield self.local(file, given, what)
            return
        first = node if isinstance(node, ast.For) else node.generators[0]  # type: ignore[attr-defined]
        body = node.body if isinstance(node, ast.For) else [node.elt]  # type: ignore[attr-defined]
        if any(_meets(at, file) for part in body for at in walk(part)) and _is_unordered(first.iter, file):
            what = f"a set decides in which order collectives run: {ast.unparse(first.iter)}"
            yield self.local(file, first.iter, what)


def _meets(node: ast.AST, file: File) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if tail_of(node) in _MEETS or (_SYNCS.search(tail_of(node)) and isinstance(node.func, ast.Attribute)):
        return rank_guard(node, file) is None
    return False


def _is_unordered(node: ast.expr, file: File, depth: int = 0) -> bool:
    """A set, by what is stored under names, or a list made of one as it comes."""
    if depth > _DEEPEST:
        return False
    if isinstance(node, ast.Call) and tail_of(node) in _KEEP and node.args:
        return _is_unordered(node.args[0], file, depth + 1)
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        return _is_unordered(node.generators[0].iter, file, depth + 1)
    if isinstance(node, ast.Name | ast.Attribute):
        held = latest(node, file)
        stored = [value for value in held if not _is_element(value, file)]
        filled = [value for value in held if value not in stored]
        if any(_is_empty_set(value) for value in stored):
            return bool(filled) and not any(map(_is_number, filled))
        return any(_is_set(value, file) or _is_unordered(value, file, depth + 1) for value in stored)
    if isinstance(node, ast.Call) and (called := function_called(node, file)) is not None:
        given_back = [at.value for at in own(called) if isinstance(at, ast.Return) and at.value is not None]
        return bool(given_back) and all(_is_unordered(value, file, depth + 1) for value in given_back)
    return _is_set(node, file)


def _is_empty_set(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and tail_of(node) == "set" and not node.args


def _is_number(node: ast.expr) -> bool:
    """Small numbers have the same order in every process."""
    return (isinstance(node, ast.Constant) and isinstance(node.value, int)) or speaks_of(node, _NUMBERS)


def _is_element(value: ast.expr, file: File) -> bool:
    """It is put into what is stored, or is what a loop goes over: not the thing itself."""
    above = next(file.parents(value), None)
    return not isinstance(above, ast.Assign | ast.AnnAssign | ast.NamedExpr)


def _is_set(node: ast.expr, file: File) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
        return any(_is_set(one, file) or _is_view(one) for one in (node.left, node.right))
    if isinstance(node, ast.Set):
        return not all(isinstance(e, ast.Constant) and isinstance(e.value, int) for e in node.elts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset"):
        return bool(node.args) and not speaks_of(node.args[0], _NUMBERS)
    return isinstance(node, ast.SetComp) and not speaks_of(node, _NUMBERS)


def _is_view(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and tail_of(node) == "keys" and not node.args
