"""AR305: every host feeds the same rows as if they were its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tables.data import LOADERS
from allranks.check.tree.syntax import name_of, speaks_of
from allranks.findings import Finding, Note

_TAKES_OWN_ROWS = (
    "jax.make_array_from_process_local_data",
    "jax.experimental.multihost_utils.host_local_array_to_global_array",
)
_READS = frozenset(
    [
        *("datasets.load_dataset", "tensorflow_datasets.load", "tensorflow.data.TFRecordDataset", "numpy.memmap"),
        *("tensorflow_datasets.builder", "datasets.load_from_disk", "numpy.load"),
        *LOADERS,
    ]
)
# Somebody in this file has thought of who reads what.
_THOUGHT = re.compile(
    r"process_index|process_count|process_id|shard(?!ing|ed|_map|_batch$)|host_id|split_by|num_hosts|ShardByJax|"
    r"Sampler|world_size|^rank$|node_rank|even_splits|per_host|for_jax_process|process_allgather",
)


class JaxHostInput(LocalRule):
    """
    ## What it does
    Finds a file that reads a dataset and hands the rows to a call that puts the rows of all processes together
    (`make_array_from_process_local_data`, `host_local_array_to_global_array`), and never asks which process it is.

    ## Why is this bad
    Those calls take the rows of this process. If all processes read the same, the global batch is one part, N times.

    ## What happens with N processes
    Nothing fails. Each batch holds every row N times: the job learns from 1/N of the data it pays for.

    ## Known problems
    A dataset that is split by what is passed in from elsewhere, under a name that does not say so.

    No fault of this kind has been seen in real code yet; the calls take the rows of each process for its own, by their
    contract.

    ## Use instead
    Read by `jax.process_index()` of `jax.process_count()` (`split_for_jax_process`, `ShardByJaxProcess`,
    `split_dataset_by_node`, `allranks.shard`), or give the same whole batch to `jax.device_put` on all processes.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR305", "jax-host-input", "error", "data"
    cluster = "All processes read the same rows: each batch holds every row N times, and nothing fails."
    advice = "Split what is read by jax.process_index() and jax.process_count(), or device_put the same whole batch."
    words = ("process_local_data", "host_local_array_to_global_array")
    nodes = (ast.Call,)
    calls = _TAKES_OWN_ROWS
    bad = (
        Example(
            {
                "train.py": """\
import jax
from datasets import load_dataset


def batches(sharding):
    data = load_dataset("data", split="train", streaming=True)
    for rows in data.iter(batch_size=8):
        yield jax.make_array_from_process_local_data(sharding, rows["tokens"])
"""
            },
            at=(8,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import jax
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node


def batches(sharding):
    data = load_dataset("data", split="train", streaming=True)
    data = split_dataset_by_node(data, rank=jax.process_index(), world_size=jax.process_count())
    for rows in data.iter(batch_size=8):
        yield jax.make_array_from_process_local_data(sharding, rows["tokens"])
"""
            }
        ),
        Example(
            {
                "arrays.py": """\
import jax


def put(sharding, rows):
    return jax.make_array_from_process_local_data(sharding, rows)
"""
            }
        ),
        Example(
            {
                "train.py": """\
import jax
from datasets import load_dataset

data = load_dataset("data", split="train")
batch = jax.device_put(data[:8]["tokens"])
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or name_of(node, file) not in _TAKES_OWN_ROWS:
            return
        reads = [n for n in file.nodes if isinstance(n, ast.Call) and name_of(n, file) in _READS]
        if not reads or speaks_of(file.tree, _THOUGHT) or any(_THOUGHT.search(w) for w in _keywords(file.tree)):
            return
        reader = name_of(reads[0], file)
        yield self.finding(
            file.place(node),
            file.symbol(node),
            f"rows of {reader} are taken for this process' own, and all processes read the same",
            notes=[Note(f"{reader} reads here", file.place(reads[0]))],
        )


def _keywords(tree: ast.AST) -> Iterator[str]:
    """Yield names that `words_of` leaves out: of arguments, and of what is imported."""
    for node in walk(tree):
        if isinstance(node, ast.arg | ast.keyword):
            yield node.arg or ""
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]
