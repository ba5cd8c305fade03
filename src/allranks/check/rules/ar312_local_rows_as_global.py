"""AR312: the rows of one process are passed as the rows of all."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import function_called, reached, values
from allranks.check.tree.splits import split_at, splits
from allranks.check.tree.syntax import given, name_of, own
from allranks.findings import Finding

_FROM_LOCAL = "jax.make_array_from_process_local_data"
_PUTS = ("jax.device_put", "jax.make_array_from_callback")
_READERS = (
    *("tensorflow_datasets.split_for_jax_process", "grain.python.ShardByJaxProcess", "grain.ShardByJaxProcess"),
    *("tensorflow_datasets.even_splits", "datasets.distributed.split_dataset_by_node"),
)


class LocalRowsAsGlobal(LocalRule):
    """
    ## What it does
    Follows rows that a process has read for itself (its part by rank) into a call that takes the whole batch:
    `device_put` with a sharding of all devices, `make_array_from_callback` with the shape of the part,
    `make_array_from_process_local_data` with the shape of the part as global shape.

    ## Why is this bad
    These calls cut a batch that is equal on all processes, and keep the piece for the devices of this process.

    ## What happens with N processes
    Each process keeps 1/N of its own rows and drops the others: (N-1)/N of the data is never used, without an error.
    With some versions and shapes an assertion fails instead.

    ## Known problems
    Rows are followed within one file.

    ## Use instead
    `jax.make_array_from_process_local_data(sharding, rows)`, which combines the rows of the processes; or
    `allranks.global_batch(rows, mesh)`.
    """

    code, name, severity, row = "AR312", "local-rows-as-global", "error", "sharding"
    cluster = "Each process keeps 1/N of its own rows: (N-1)/N of the data is dropped without an error, or it fails."
    advice = "Use jax.make_array_from_process_local_data(sharding, rows), which combines the rows of the processes."
    words = ("device_put", "make_array_from_")
    nodes = (ast.Call,)
    calls = (_FROM_LOCAL, *_PUTS)
    bad = (
        """\
import jax


def put(batch, sharding):
    rows = batch[jax.process_index() :: jax.process_count()]
    return jax.device_put(rows, sharding)  # <-- found
""",
    )
    good = (
        """\
import jax


def put(batch, sharding):
    rows = batch[jax.process_index() :: jax.process_count()]
    small = jax.device_put(rows, jax.local_devices()[0])
    return jax.make_array_from_process_local_data(sharding, rows), small, jax.device_put(batch, sharding)
""",
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call):
            return
        if name_of(node, file) == _FROM_LOCAL:
            rows, shape = given(node, 1, "local_data"), given(node, 2, "global_shape")
            told = rows is not None and shape is not None and ast.unparse(shape) == f"{ast.unparse(rows)}.shape"
            if rows is not None and told and _is_part(rows, file):
                yield self.local(file, node, "the global shape is given as the shape of this process' rows")
        elif name_of(node, file) in _PUTS and len(node.args) + len(node.keywords) >= 2:
            rows, target = node.args[0] if node.args else None, given(node, 1, "device")
            places = [ast.unparse(one) for one in (target, *values(target, file))] if target is not None else ["device"]
            spans = any("sharding" in place.lower() for place in places)
            stays_here = not spans and any("device" in place or "cpu" in place for place in places)
            if rows is not None and not stays_here and _is_part(rows, file):
                yield self.local(file, node, f"{ast.unparse(rows)} holds this process' rows only")


def _is_part(rows: ast.AST, file: File) -> bool:
    """Whether it is made of what was dealt out to this process by its rank."""
    return any(_deals(at, file) for whole in reached(rows, file) for at in walk(whole))


def _deals(node: ast.AST, file: File) -> bool:
    if isinstance(node, ast.Subscript | ast.Call) and split_at(node, file) is not None:
        return True
    function = function_called(node, file) if isinstance(node, ast.Call) else None
    reads = function is not None and any(isinstance(at, ast.Yield) for at in own(function)) and splits(function, file)
    return isinstance(node, ast.Call) and (name_of(node, file) in _READERS or bool(reads))
