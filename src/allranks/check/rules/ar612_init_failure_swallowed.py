"""AR612: a process that could not join the others goes on alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.syntax import catches_all, leaves, name_of, nodes_in, raises, tail_of
from allranks.findings import Finding

_JOINS = (
    *("jax.distributed.initialize", "torch.distributed.init_process_group", "deepspeed.init_distributed"),
    "allranks.init",
)
_SAYS = {"print", "debug", "info", "warning", "warn", "error", "exception", "critical", "log"}


class InitFailureSwallowed(LocalRule):
    """
    ## What it does
    Finds `jax.distributed.initialize()` or `init_process_group()` in a `try` whose handler catches any exception and
    lets the program continue.

    ## Why is this bad
    The program should run as a single process if there are no others. But it also does so if the others exist and could
    not be reached: a wrong address, a port in use, a timeout.

    ## What happens with N processes
    The process that failed trains separately as rank 0, and overwrites the checkpoints of the job. The others wait for
    it until they time out. Or all fail, and N programs train in the same directory.

    ## Known problems
    A handler that does more than print is taken to know what to do.

    ## Use instead
    Check whether there are others (`"RANK" in os.environ`, a setting), join only then, and let a failure end the
    process. `allranks.init()` does this.
    """

    code, name, severity, row = "AR612", "init-failure-swallowed", "error", "initialisation"
    cluster = "A process that could not join trains separately as rank 0, beside the job and over its files."
    advice = "Check first whether there are other processes, and let a failure to join them end this one."
    words = ("init",)
    nodes = (ast.Try, ast.TryStar)
    bad = (
        """\
import jax

try:
    jax.distributed.initialize()
except Exception as error:  # <-- found
    print(f"one process: {error}")
""",
    )
    good = (
        """\
import os
import jax

if "COORDINATOR" in os.environ:
    try:
        jax.distributed.initialize()
    except Exception:
        print("cannot join")
        raise
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Try | ast.TryStar):
            return
        joins = next((name for at in nodes_in(node.body) if (name := name_of(at, file)) in _JOINS), None)
        if joins is None or any(isinstance(parent, ast.While | ast.For) for parent in file.parents(node)):
            return
        handler = next((at for at in node.handlers if catches_all(at)), None)
        if handler is None or raises(handler):
            return
        calls = [tail_of(at) for at in nodes_in(handler.body) if isinstance(at, ast.Call)]
        knows = leaves(handler.body) and not _SAYS.issuperset(calls)
        if not knows and not any(call.startswith("init") for call in calls):
            what = f"a failure of {joins} is caught and ignored: this process continues as a single process"
            yield self.local(file, handler, what)
