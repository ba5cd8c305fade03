"""AR607: worker processes are forked from a process in which JAX runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.source import File
from allranks.check.tables.backend import JAX_ARRAYS, JAX_STARTERS
from allranks.check.tables.data import LOADERS
from allranks.check.tree.syntax import has_stars, keyword, name_of
from allranks.findings import Finding

_SAFE = ("set_start_method", "forkserver", "spawn", "multiprocessing_context")


class ForkAfterBackend(LocalRule):
    """
    ## What it does
    Finds a torch `DataLoader` with worker processes in a program that uses JAX, without a start method other than fork.

    ## Why is this bad
    JAX has threads, and a forked process inherits their locks in whatever state they are.

    ## What happens with N processes
    Now and then a worker of a rank hangs. The rank waits for its batch, and all others for the rank. JAX warns:
    "os.fork() was called. os.fork() is incompatible with multithreaded code, and JAX is multithreaded".

    ## Known problems
    Most runs succeed. The rule is off until it is selected.

    ## Use instead
    `DataLoader(..., multiprocessing_context="forkserver")`, or threads.
    """

    code, name, severity, row = "AR607", "fork-after-backend", "warning", "data"
    default = False
    cluster = "A forked worker can inherit a lock that is never released: one rank hangs, and all wait for it."
    advice = 'Pass multiprocessing_context="forkserver" (or "spawn").'
    words = ("num_workers",)
    nodes = (ast.Call,)
    calls = LOADERS
    bad = (
        Example(
            {
                "train.py": """\
import jax
from torch.utils.data import DataLoader


def main(data):
    print(jax.devices())
    return DataLoader(data, num_workers=4)
"""
            },
            at=(7,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import jax
from torch.utils.data import DataLoader


def main(data):
    print(jax.devices())
    DataLoader(data, num_workers=0)
    return DataLoader(data, num_workers=4, multiprocessing_context="forkserver")
"""
            }
        ),
        Example({"train.py": "from torch.utils.data import DataLoader\n\nloader = DataLoader([], num_workers=4)\n"}),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or name_of(node, file) not in LOADERS or has_stars(node):
            return
        workers = keyword(node, "num_workers")
        if workers is None or (isinstance(workers, ast.Constant) and not workers.value):
            return
        if any(word in file.text for word in _SAFE):
            return
        starters = JAX_STARTERS | JAX_ARRAYS
        if any(isinstance(at, ast.Call) and name_of(at, file) in starters for at in file.nodes):
            yield self.local(file, node, "worker processes are forked from a process in which JAX runs")
