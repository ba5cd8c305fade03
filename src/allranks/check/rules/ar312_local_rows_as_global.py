"""AR312: the rows of one process are passed as the rows of all."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import RANK_KINDS, function_called, latest, origins, reached, values
from allranks.check.tree.splits import split_at, splits
from allranks.check.tree.syntax import function_of, given, name_of, own, tail_of
from allranks.findings import Finding

_FROM_LOCAL = "jax.make_array_from_process_local_data"
_PUTS = ("jax.device_put", "jax.make_array_from_callback")
_READERS = (
    *("tensorflow_datasets.split_for_jax_process", "grain.python.ShardByJaxProcess", "grain.ShardByJaxProcess"),
    *("tensorflow_datasets.even_splits", "datasets.distributed.split_dataset_by_node"),
)
_ANSWERS = (
    "All processes except the first use rows of rank 0 as the right answers to their own rows.",
    "Add the rank times the number of rows: the gathered rows of rank r begin there.",
)
_RANK = re.compile(r"rank|offset|start|begin|process_index")


class LocalRowsAsGlobal(LocalRule):
    """
    ## What it does
    Follows rows that a process has read for itself (its part by rank) into a call that takes the whole batch:
    `device_put` with a sharding of all devices, `make_array_from_callback` with the shape of the part,
    `make_array_from_process_local_data` with the shape of the part as global shape. With torch, a contrastive loss of a
    process' own rows against the gathered ones whose right answers are numbered from 0 (`arange(len(q))`).

    ## Why is this bad
    These calls cut a batch that is equal on all processes, and keep the piece for the devices of this process. In
    gathered rows, those of rank r begin at r times the size of a batch.

    ## What happens with N processes
    Each process keeps 1/N of its own rows and drops the others: (N-1)/N of the data is never used, without an error.
    With some versions and shapes an assertion fails instead. In a contrastive loss all processes except the first learn
    that the rows of rank 0 are the right ones.

    ## Known problems
    Rows are followed within one file. That the rows are dropped was measured.

    ## Use instead
    `jax.make_array_from_process_local_data(sharding, rows)`, which combines the rows of the processes; or
    `allranks.global_batch(rows, mesh)`.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR312", "local-rows-as-global", "error", "sharding"
    cluster = "Each process keeps 1/N of its own rows: (N-1)/N of the data is dropped without an error, or it fails."
    advice = "Use jax.make_array_from_process_local_data(sharding, rows), which combines the rows of the processes."
    words = ("device_put", "make_array_from_", "arange")
    nodes = (ast.Call,)
    calls = (_FROM_LOCAL, *_PUTS, "torch.arange")
    bad = (
        Example(
            {
                "train.py": """\
import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P


def samples(items):
    for i, item in enumerate(items):
        if i % jax.process_count() != jax.process_index():
            continue
        yield item


def train(mesh, items):
    sharding = NamedSharding(mesh, P("dp"))
    for rows in samples(items):
        batch = jax.device_put(np.asarray(rows), sharding)
        print(batch)
"""
            },
            at=(16,),
        ),
        Example(
            {
                "train.py": """\
import jax


def batches(data, sharding):
    rows = data[jax.process_index() :: jax.process_count()]
    return jax.make_array_from_process_local_data(sharding, rows, rows.shape)
"""
            },
            at=(6,),
        ),
        Example(
            {
                "loss.py": """\
import torch
import torch.nn.functional as F
from comm import gather_rows


def in_batch(queries, passages):
    every = gather_rows(passages)
    scores = queries @ every.t() / 0.05
    labels = torch.arange(queries.size(0), device=queries.device)
    return F.cross_entropy(scores, labels)
"""
            },
            at=(9,),
        ),
    )
    good = (
        Example(
            {
                "loss.py": """\
import torch
import torch.distributed as dist
import torch.nn.functional as F
from comm import gather_rows


def in_batch(queries, passages):
    every = gather_rows(passages)
    labels = torch.arange(len(queries)) + len(queries) * dist.get_rank()
    return F.cross_entropy(queries @ every.T, labels)


def of_all(queries, passages):
    queries, passages = gather_rows(queries), gather_rows(passages)
    return F.cross_entropy(queries @ passages.T, torch.arange(len(queries)))


def local(queries, passages):
    return F.cross_entropy(queries @ passages.T, torch.arange(len(queries)))
"""
            }
        ),
        Example(
            {
                "train.py": """\
import jax


def batches(data, sharding):
    rows = data[jax.process_index() :: jax.process_count()]
    yield jax.make_array_from_process_local_data(sharding, rows)
    yield jax.make_array_from_process_local_data(sharding, rows, (len(data), 3))
    yield jax.device_put(data, sharding)
    yield jax.device_put(rows, jax.local_devices()[0])
    yield jax.device_put(rows)
    yield jax.make_array_from_process_local_data(sharding, data, data.shape)
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call):
            return
        name = name_of(node, file)
        if name == "torch.arange":
            if (numbered := _against_gathered(node, file)) is not None:
                message = f"the labels of {numbered} start at 0 on every process"
                yield self.local(file, node, message, cluster=_ANSWERS[0], advice=_ANSWERS[1])
        elif name == _FROM_LOCAL:
            rows, shape = given(node, 1, "local_data"), given(node, 2, "global_shape")
            told = rows is not None and shape is not None and ast.unparse(shape) == f"{ast.unparse(rows)}.shape"
            if rows is not None and told and _is_part(rows, file):
                yield self.local(file, node, "the global shape is given as the shape of this process' rows")
        elif name in _PUTS and len(node.args) + len(node.keywords) >= 2:
            rows = given(node, 0, "x" if name == "jax.device_put" else "shape")
            if rows is not None and not _stays_here(node, file) and _is_part(rows, file):
                yield self.local(file, node, f"{ast.unparse(rows)} holds this process' rows only")


def _stays_here(call: ast.Call, file: File) -> bool:
    """It is put on devices of this process, or on one device."""
    target = given(call, 1, "device")
    if target is None:
        return True
    texts = [ast.unparse(v) for v in (target, *values(target, file))]
    words = ("local_devices", "devices()[", "device", "SingleDevice", "local_mesh", "cpu")
    return any(word in text for text in texts for word in words)


def _is_part(node: ast.AST, file: File) -> bool:
    """``node`` is made of what was dealt out to this process by its rank."""
    return any(_deals(at, file) for whole in reached(node, file) for at in walk(whole))


def _deals(node: ast.AST, file: File) -> bool:
    if isinstance(node, ast.Subscript | ast.Call) and split_at(node, file) is not None:
        return True
    return isinstance(node, ast.Call) and (name_of(node, file) in _READERS or _reads_part(node, file))


def _reads_part(call: ast.Call, file: File) -> bool:
    """It calls a function of this file that gives each process its part."""
    function = function_called(call, file)
    if function is None:
        return False
    loops = any(isinstance(n, ast.Yield) for n in own(function))
    return loops and any(origins(s.rank, file) & RANK_KINDS for s in splits(function, file))


def _against_gathered(numbers: ast.Call, file: File) -> str | None:
    """Return the process' own rows that a function multiplies with gathered ones, and numbers from 0."""
    function = function_of(numbers, file)
    if function is None or len(numbers.args) != 1 or _RANK.search(ast.unparse(function)):
        return None
    if not any(isinstance(n, ast.Call) and "entropy" in tail_of(n).lower() for n in own(function)):
        return None
    counted = {n.id for n in walk(numbers.args[0]) if isinstance(n, ast.Name)}
    for product in own(function):
        if isinstance(product, ast.BinOp) and isinstance(product.op, ast.MatMult):
            rows, others = _base(product.left), _base(product.right)
            if rows.id in counted and _is_gathered(others, file) and not _is_gathered(rows, file):
                return rows.id
    return None


def _base(node: ast.expr) -> ast.Name:
    """``every.t()``, ``every.T``, ``scale * rows``: the name of what is meant."""
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Call):
            node = node.func
        elif isinstance(node, ast.Attribute):
            node = node.value
        elif isinstance(node, ast.BinOp):
            node = node.right
        else:
            return ast.Name("")
    return node


def _is_gathered(rows: ast.Name, file: File) -> bool:
    made = [at for whole in latest(rows, file) for at in walk(whole)]
    return any(isinstance(at, ast.Call) and "gather" in ast.unparse(at.func).lower() for at in made)
