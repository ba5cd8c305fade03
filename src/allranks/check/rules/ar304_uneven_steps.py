"""AR304: data is dealt out so that some processes get more of it than others."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.source import File
from allranks.check.splits import SPLITTERS, Split, split_at
from allranks.check.syntax import class_of, function_of, inside, is_constant, keyword, own, tail_of
from allranks.findings import Finding

# Words of code that thought of it.
_EVEN = (
    *("drop_last", "even_batches", "pad_to", "repeat", "cycle", "steps_per_epoch", "max_steps", "total_size"),
    *("num_samples", "truncate", "join_uneven", "while True", "apply_padding=True", "infinite", "num_per_rank"),
)


class UnevenSteps(LocalRule):
    """
    ## What it does
    Finds a generator of training data that keeps every N-th item (`i % world_size == rank`, `islice(it, rank, None,
    n)`) and yields until its source ends, and parts of `split_between_processes` without padding that are kept.

    ## Why is this bad
    If the number of items is no multiple of N, some processes get one item more; an item that is skipped after the
    split (too long, not readable) takes it from one process alone.

    ## What happens with N processes
    At the end of the epoch some processes make one step more, alone. JAX hangs there; torch waits, or pairs that step
    with the next epoch's first one and from then on averages gradients of different steps.

    ## Known problems
    Whether somebody further out cuts the epoch to a number of steps that all reach is not seen.

    ## Use instead
    Let all processes make the same number of steps: cut or pad the source to a multiple of N before it is split
    (`DistributedSampler` pads), or agree on the end of the data (`allranks.Dataset`).

    ## Fix safety
    There is no automatic fix: whether to cut or to pad, only the author knows.
    """

    code, name, severity, row = "AR304", "uneven-steps", "warning", "data"
    cluster = "Some processes make one step more than the others: a hang, or gradients of different steps averaged."
    advice = "Cut or pad the data to a multiple of the processes before it is split, or agree on when it ends."
    words = ("rank", "process_index", "split_between_processes")
    nodes = (ast.Compare, ast.Call, ast.Subscript)
    calls = SPLITTERS
    bad = (
        Example(
            {
                "dataset.py": """\
import jax
from datasets import load_dataset


def samples(tok):
    process_index = jax.process_index()
    process_count = jax.process_count()
    dataset = load_dataset("data", split="train", streaming=True)
    for i, item in enumerate(dataset):
        if i % process_count != process_index:
            continue
        try:
            yield tok.encode(item)
        except ValueError:
            continue
"""
            },
            at=(10,),
        ),
        Example(
            {
                "buckets.py": """\
class Buckets:
    def split(self, buckets):
        for name, images in buckets.items():
            with self.accelerator.split_between_processes(images, apply_padding=False) as part:
                self.buckets[name] = part
"""
            },
            at=(4,),
        ),
        Example(
            {
                "data.py": """\
import jax
import numpy as np


def names(every):
    return every[jax.process_index() :: jax.process_count()]


def batches(every):
    for name in names(every):
        yield np.load(name)
"""
            },
            at=(6,),
        ),
    )
    good = (
        Example(
            {
                "data.py": """\
import jax
import numpy as np


def names(every):
    each = len(every) // jax.process_count()
    return every[: each * jax.process_count()][jax.process_index() :: jax.process_count()]


def batches(every):
    for name in names(every):
        yield np.load(name)
"""
            }
        ),
        Example(
            {
                "dataset.py": """\
import jax


def samples(items):
    count = jax.process_count()
    items = items[: len(items) // count * count]
    for i, item in enumerate(items):
        if i % count == jax.process_index():
            yield item


def for_ever(items):
    while True:
        for i, item in enumerate(items):
            if i % jax.process_count() == jax.process_index():
                yield item
"""
            }
        ),
        Example(
            {
                "generate.py": """\
from accelerate import PartialState

state = PartialState()
with state.split_between_processes(["a", "b", "c"]) as prompts:
    images = [len(prompt) for prompt in prompts]
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        split = split_at(node, file)
        if split is None:
            return
        if "split_between_processes" in ast.unparse(node) and isinstance(node, ast.Call):
            padding = keyword(node, "apply_padding")
            if (padding is None or is_constant(padding, False)) and _is_kept(node, file):
                yield self.local(file, node, "parts of unequal length are kept as this process' data")
        elif split.how in ("modulo", "stride") and _is_drained(split, file):
            yield self.local(file, node, "every N-th item goes to this process: some get one item more than others")


def _is_drained(split: Split, file: File) -> bool:
    """It feeds a generator that goes on until the source ends, and nothing there speaks of equal numbers."""
    function = function_of(split.node, file)
    if function is None:
        return False
    generators = [function] if _yields(function) else _fed_by(function, split.node, file)
    text = ast.unparse(class_of(function, file) or function) if generators else ""
    text += "".join(ast.unparse(generator) for generator in generators if generator is not function)
    return bool(generators) and not any(word in text for word in _EVEN) and " // " not in text


def _yields(function: ast.AST) -> bool:
    return any(isinstance(n, ast.Yield | ast.YieldFrom) for n in own(function))


def _fed_by(function: ast.AST, split: ast.AST, file: File) -> list[ast.FunctionDef]:
    """Return the generators of the file that go over what ``function`` returns, if that is the split itself."""
    returns = next(file.parents(split), None)
    if not isinstance(returns, ast.Return) or not isinstance(function, ast.FunctionDef):
        return []
    functions = (n for n in file.nodes if isinstance(n, ast.FunctionDef) and n is not function)
    return [f for f in functions if _yields(f) and any(_goes_over(n, function.name) for n in own(f))]


def _goes_over(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and tail_of(node.iter) == name


def _is_kept(call: ast.Call, file: File) -> bool:
    """``with ... as part:`` whose body stores ``part`` itself in something that outlives it."""
    for parent, _ in inside(call, file):
        if isinstance(parent, ast.With):
            names = {i.optional_vars.id for i in parent.items if isinstance(i.optional_vars, ast.Name)}
            return any(
                isinstance(s, ast.Assign)
                and isinstance(s.value, ast.Name)
                and s.value.id in names
                and isinstance(s.targets[0], ast.Attribute | ast.Subscript)
                for s in parent.body
            )
    return False
