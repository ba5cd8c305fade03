"""AR304: some processes get more of the training data than others."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import function_called, origins, reached
from allranks.check.tree.splits import Split, split_at
from allranks.check.tree.syntax import class_of, function_of, is_constant, keyword, own, places_in, tail_of
from allranks.check.tree.words import mentions, says
from allranks.findings import Finding

# Words of a function or file in which somebody has thought of the rest.
_EVENED = (
    *("drop_last", "pad", "truncat", "min(", "Join(", "ceil(", "total_size", "repeat(", "cycle(", "while True"),
    *(" // jax", "all_reduce", "all_gather", "gather_object", "infinite", "itertools.count", "forever"),
)
_OF_BUFFER = "each process has filled its own buffer: some have a batch more than others"
_OF_DEVICES = "the last batch may be smaller, and cannot be divided among the devices"
_STEPS = ("backward(", "train_step", "pmap", "apply_gradients", "value_and_grad", "gradient")


class UnevenSteps(LocalRule):
    """
    ## What it does
    Finds parts of the training data that can differ in length by rank, where the steps are collective:

    - a generator that keeps every N-th item (`i % world_size == rank`, `islice(it, rank, None, n)`) until its source
      ends
    - backward passes in a loop over `files[rank::world]`, or over a loader of it
    - the last, smaller batch of a loader over the buffer that each process has filled, without `drop_last=True`
    - the last, smaller batch of `dataset.batch(n)` without `drop_remainder=True`, which JAX divides among devices

    ## Why is this bad
    If the number of items is no multiple of N, some processes get one item more. An item that is skipped after the
    split (too long, not readable) is missing in one process only.

    ## What happens with N processes
    At the end of the epoch some processes make one step more. JAX hangs there. torch waits, or that step matches the
    first step of the next epoch, and from then on gradients of different steps are averaged.

    ## Known problems
    A function that pads, drops or counts anything is taken to make its parts even.

    ## Use instead
    Let all processes make the same number of steps. Cut or pad the source to a multiple of N before it is divided
    (`DistributedSampler` pads), or agree on the end of the data (`allranks.Dataset`).
    """

    code, name, severity, row = "AR304", "uneven-steps", "warning", "data"
    cluster = "Some processes make one step more than the others: a hang, or gradients of different steps averaged."
    advice = "Cut or pad the data to a multiple of the processes before it is divided, or agree on when it ends."
    words = ("rank", "process_index", "split_between_processes")
    nodes = (ast.Compare, ast.Call, ast.Subscript)
    bad = (
        """\
import jax


def rows(source):
    for i, row in enumerate(source):
        if i % jax.process_count() == jax.process_index():  # <-- found
            yield row


def train(train_step, state, source):
    for row in rows(source):
        state = train_step(state, row)
""",
    )
    good = (
        """\
import jax


def rows(source):
    source = source[: len(source) // jax.process_count() * jax.process_count()]
    for i, row in enumerate(source):
        if i % jax.process_count() == jax.process_index():
            yield row


def train(train_step, state, source):
    for row in rows(source):
        state = train_step(state, row)
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test and not says(file.path, "held_out", "one_process")

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        what = _last_batch(node, file) if isinstance(node, ast.Call) else ""
        split = split_at(node, file)
        if split is not None and (split.how == "block" or mentions(split.source, "held_out")):
            split = None
        if not what and split is None:
            return
        text = _around(node, file)
        even = any(word in text for word in _EVENED)
        if what and (what == _OF_BUFFER or not even):
            yield self.local(file, node, what, advice="Drop the last batch (drop_last=True, drop_remainder=True).")
        if split is None:
            return
        function = function_of(node, file)
        if even or (function is not None and says(function.name, "held_out")):
            return
        if _is_taken_by_steps(split, node, file) and not _is_evened(split, file):
            yield self.local(file, node, "every N-th item goes to this process: some get one item more than others")

    def confirm(self, finding: Finding, program: Program) -> bool:
        """Whether its program learns from what it divides."""
        path, facts = finding.place.path, program.facts
        return facts.says(path, *_STEPS) or not facts.says(path, "__main__")


def _around(node: ast.AST, file: File) -> str:
    """Return the text of the class around a node, or of its function; else of the file."""
    scope = class_of(node, file) or function_of(node, file)
    return file.code_in(scope)


def _is_evened(split: Split, file: File) -> bool:
    """Whether what is divided was cut before to a multiple of the processes, here or in a function that made it."""
    made = list(reached(split.source, file))
    part = split.node.slice if isinstance(split.node, ast.Subscript) else None
    step = ast.unparse(part.step) if isinstance(part, ast.Slice) and part.step is not None else "?"
    called = [function_called(at, file) for one in made for at in walk(one) if isinstance(at, ast.Call)]
    made += [at for one in called if one is not None for at in own(one) if isinstance(at, ast.Return)]
    cuts = (at.slice for one in made for at in walk(one) if isinstance(at, ast.Subscript))
    ends = [cut.upper for cut in cuts if isinstance(cut, ast.Slice) and cut.upper is not None]
    return any("size" in origins(end, file) or step in ast.unparse(end) for end in ends)


def _last_batch(call: ast.Call, file: File) -> str:
    """Return what is wrong with the last batch that a call makes, '' if nothing is."""
    if tail_of(call) == "DataLoader" and call.args and tail_of(call.args[0]).endswith("buffer"):
        last = keyword(call, "drop_last")
        return "" if last is not None and not is_constant(last, False) else _OF_BUFFER
    if tail_of(call) in ("batch", "padded_batch") and isinstance(call.func, ast.Attribute) and file.says("tensorflow"):
        divides = file.says("pmap", "device_count", "make_array_from_process_local_data")
        return _OF_DEVICES if divides and keyword(call, "drop_remainder") is None and len(call.args) < 2 else ""
    return ""


def _is_taken_by_steps(split: Split, node: ast.AST, file: File) -> bool:
    """Whether a generator yields the part, or a loop over it makes a step for each item."""
    function = function_of(node, file)
    nodes = own(function or file.tree)
    owner = class_of(node, file)
    samples = owner is not None and function is not None and function.name in ("__iter__", "__init__", "_get_indices")
    dealt = split.how == "modulo" or (split.how == "stride" and (samples or isinstance(node, ast.Call)))
    if dealt and (samples or any(isinstance(at, ast.Yield) for at in nodes)):
        return True
    names = {ast.unparse(node)}
    for at in (at for at in nodes if isinstance(at, ast.Assign)):
        if any(inner is node for inner in walk(at.value)) or names & places_in(at.value):
            names |= {ast.unparse(one) for one in at.targets}
    loops = [
        at for at in nodes if isinstance(at, ast.For) and (names & places_in(at.iter) or ast.unparse(at.iter) in names)
    ]
    return any(isinstance(at, ast.Call) and tail_of(at) == "backward" for loop in loops for at in own(loop))
