"""AR305: every host feeds the same rows as if they were its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tables.data import LOADERS
from allranks.check.tree.readers import SOURCES, divides_alone
from allranks.check.tree.reads import READERS, is_first_read
from allranks.check.tree.syntax import name_of, speaks_of, tail_of
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
_READS_ALL = """\
import tensorflow as tf


def train(batch):
    files = tf.data.Dataset.list_files("train-*")
    return files.interleave(tf.data.TFRecordDataset).shuffle(9).batch(batch).as_numpy_iterator()


def test(batch):
    return tf.data.TFRecordDataset("test.tfrecord").batch(batch)
"""
_ALL_READ = "every process reads the same"


class JaxHostInput(LocalRule):
    """
    ## What it does
    Finds a file that reads a dataset and gives the rows to a call that combines the rows of all processes
    (`make_array_from_process_local_data`, `host_local_array_to_global_array`), without using the number of its process.

    It also finds reads of training data (`tfds`, `tf.data`, `datasets`, Grain, arrays on disk) in a program that joins
    its processes or divides its batch by their number. The program feeds rows by one of those calls or to `pmap`, and
    no file divides anything by the number of the process.

    ## Why is this bad
    Those calls take the rows of this process. If all processes read the same rows, the global batch is one part, N
    times.

    ## What happens with N processes
    Nothing fails. Each batch holds every row N times: the job trains on 1/N of the rows that it processes.

    ## Known problems
    A dataset that is divided by an argument from elsewhere, under a name that does not show it, is reported, too. A
    program that uses the number of its process for more than a test for the first one is not reported: it may be a seed
    of the data's order.

    ## Use instead
    Read by `jax.process_index()` of `jax.process_count()` (`split_for_jax_process`, `ShardByJaxProcess`,
    `split_dataset_by_node`, `allranks.shard`). Or give the same complete batch to `jax.device_put` on all processes.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR305", "jax-host-input", "error", "data"
    cluster = "All processes read the same rows: each batch holds every row N times, and nothing fails."
    advice = (
        "Divide what is read by jax.process_index() and jax.process_count(), or device_put the same complete batch."
    )
    words = ("process_local_data", "host_local_array_to_global_array", *READERS)
    whole = True
    nodes = (ast.Call,)
    calls = (*_TAKES_OWN_ROWS, *READERS)
    bad = (
        Example(
            {
                "data.py": _READS_ALL,
                "train.py": """\
import jax
import data

jax.distributed.initialize()
step = jax.pmap(train_step, axis_name="d")
for batch in data.train(1024 // jax.process_count()):
    step(batch)
    if jax.process_index() == 0:
        print("step")
""",
            },
            at=(5,),
        ),
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
        # Somebody in the program divides what is read.
        Example(
            {
                "data.py": _READS_ALL,
                "train.py": """\
import jax
import data

jax.distributed.initialize()
step = jax.pmap(train_step, axis_name="d")
rows = data.train(8).shard(jax.process_count(), jax.process_index())
for batch in rows:
    step(batch)
""",
            }
        ),
        # One process.
        Example(
            {
                "data.py": _READS_ALL,
                "train.py": """\
import jax
import data

step = jax.pmap(train_step, axis_name="d")
for batch in data.train(64 * jax.local_device_count()):
    step(batch)
""",
            }
        ),
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
        if not isinstance(node, ast.Call):
            return
        if name_of(node, file) in _TAKES_OWN_ROWS:
            yield from self._fed(node, file)
        elif is_first_read(node, file) and not _is_told(node, file):
            yield self.local(file, node, f"{_ALL_READ}: nothing in the program divides what {tail_of(node)} returns")

    def _fed(self, node: ast.Call, file: File) -> Iterator[Finding]:
        reads = [n for n in file.nodes if isinstance(n, ast.Call) and name_of(n, file) in _READS]
        if not reads or speaks_of(file.tree, _THOUGHT) or any(_THOUGHT.search(w) for w in _keywords(file.tree)):
            return
        reader = name_of(reads[0], file)
        yield self.finding(
            file.place(node),
            file.symbol(node),
            f"rows of {reader} count as this process' part, and all processes read the same rows",
            notes=[Note(f"{reader} reads here", file.place(reads[0]))],
        )

    def stands(self, finding: Finding, program: Program) -> bool:
        """Who reads all rows may be no program of several processes, or another file divides them."""
        return not finding.message.startswith(_ALL_READ) or finding.place.path in program.facts.fed_alike


def _is_told(node: ast.Call, file: File) -> bool:
    """What takes the rows stands here, or what divides the batch does, and says so by itself."""
    takes = any(isinstance(n, ast.Call) and name_of(n, file) in _TAKES_OWN_ROWS for n in file.kinds.get(ast.Call, ()))
    divides = ("process_count" in file.text or "host_count" in file.text) and tail_of(node) in SOURCES
    return takes or (divides and divides_alone(file))


def _keywords(tree: ast.AST) -> Iterator[str]:
    """Yield names that `words_of` leaves out: of arguments, and of what is imported."""
    for node in walk(tree):
        if isinstance(node, ast.arg | ast.keyword):
            yield node.arg or ""
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]
