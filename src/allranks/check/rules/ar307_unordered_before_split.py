"""AR307: files are divided among the processes in the order in which a directory lists them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.origins import origins
from allranks.check.tree.splits import handed_at, split_at
from allranks.check.tree.syntax import bases_of, class_of, function_of, name_of, own, tail_of
from allranks.check.tree.words import says
from allranks.findings import Edit, Finding, Fix, Place

LISTS = (
    *("os.listdir", "os.scandir", "os.walk", "glob.glob", "glob.iglob", "pathlib.Path.iterdir"),
    *("pathlib.Path.glob", "pathlib.Path.rglob", "iterdir", "rglob", "glob"),
)
_SORTS = ("sorted", "natsorted", "sort", "sort_values", "shuffle")
_DEALS = ("DistributedSampler", "Accelerator(", "LightningDataModule", "Trainer(", "LightningModule")


class UnorderedBeforeSplit(LocalRule):
    """
    ## What it does
    Finds a listing of a directory (`os.listdir`, `glob.glob`) that is never sorted, and is divided among the processes:

    - by the rank in the same file
    - as a data set whose samples a sampler divides by number

    ## Why is this bad
    The order of a listing is that of the file system. It differs between hosts, and on network disks between calls.

    ## What happens with N processes
    Each process takes its part of another order: some files are read twice in an epoch, others never. There is no
    error.

    ## Known problems
    On one host with a local disk the order is the same in all processes. A listing that another function sorts is not
    followed.

    ## Use instead
    `sorted(os.listdir(folder))`.

    ## Fix safety
    Safe: a listing that is split where it is made is sorted there. One that is stored is left to its author.
    """

    code, name, severity, row = "AR307", "unordered-before-split", "warning", "data"
    cluster = "Hosts list the files in different orders: some are read twice in an epoch, others never."
    advice = "Sort the list before it is divided: sorted(...)."
    words = ("listdir", "scandir", "glob", "iterdir", "os.walk")
    nodes = (ast.Call, ast.Subscript, ast.Compare)
    bad = (
        """\
import glob
import torch.distributed as dist

dist.init_process_group("gloo")
files = glob.glob("data/*.npy")
mine = files[dist.get_rank() :: dist.get_world_size()]  # <-- found
""",
    )
    good = (
        """\
import glob
import torch.distributed as dist

dist.init_process_group("gloo")
files = glob.glob("data/*.npy")
files.sort()
mine = files[dist.get_rank() :: dist.get_world_size()]
others = sorted(glob.glob("more/*.npy"))[dist.get_rank() :: dist.get_world_size()]
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        split = split_at(node, file) or handed_at(node, file)
        if split is not None:
            if "listing" in origins(split.source, file) and not _sorts(split.source, file):
                what = f"the order of {ast.unparse(split.source)}, which is split, is undefined"
                yield self.local(file, node, what, fix=_fix(split.source, file))
        elif isinstance(node, ast.Call) and _lists(node, file) and _numbers_samples(node, file):
            yield self.local(file, node, f"the data set numbers its files as {tail_of(node)} lists them")

    def confirm(self, finding: Finding, program: Program) -> bool:
        """Whether a program that deals out a data set uses it, maybe on several hosts."""
        path, facts = finding.place.path, program.facts
        here = "is undefined" in finding.message
        return not facts.one_host and (here or (facts.several_nodes and facts.says(path, *_DEALS)))


def _fix(source: ast.expr, file: File) -> Fix | None:
    if not isinstance(source, ast.Call):
        return None
    whole = file.place(source)
    before = Place(whole.path, whole.line, whole.column, whole.line, whole.column)
    after = Place(whole.path, whole.end_line, whole.end_column, whole.end_line, whole.end_column)
    return Fix("sorted()", (Edit(before, "sorted("), Edit(after, ")")), safe=True)


def _lists(call: ast.Call, file: File) -> bool:
    return name_of(call, file) in LISTS or tail_of(call) in ("iterdir", "rglob")


def _sorts(source: ast.expr, file: File) -> bool:
    """Whether ``source.sort()`` stands in its function."""
    calls = (at for at in own(function_of(source, file) or file.tree) if isinstance(at, ast.Call))
    return any(
        isinstance(at.func, ast.Attribute)
        and at.func.attr == "sort"
        and ast.unparse(at.func.value) == ast.unparse(source)
        for at in calls
    )


def _numbers_samples(listing: ast.Call, file: File) -> bool:
    """Whether the constructor of a data set keeps what a directory lists, and nothing in it sorts."""
    function, owner = function_of(listing, file), class_of(listing, file)
    if function is None or owner is None or function.name != "__init__":
        return False
    if not any(base.endswith("Dataset") and "Iterable" not in base for base in (*bases_of(owner, file), owner.name)):
        return False
    if any(isinstance(at, ast.Call) and tail_of(at) in _SORTS for at in own(function)):
        return False
    if tail_of(next(file.parents(listing))) in ("len", "set", "any"):
        return False
    above = next((at for at in file.parents(listing) if isinstance(at, ast.stmt)), None)
    kept = above.targets if isinstance(above, ast.Assign) else [above.target] if isinstance(above, ast.For) else []
    return any(says(tail_of(one), "rows") for one in kept)
