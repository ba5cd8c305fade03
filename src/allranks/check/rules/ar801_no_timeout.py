"""AR801: a process group with the default timeout."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.syntax import has_stars, keyword, name_of
from allranks.findings import Finding

_TIMED = {
    "torch.distributed.init_process_group": ("timeout",),
    "jax.distributed.initialize": ("initialization_timeout", "heartbeat_timeout_seconds"),
}


class NoTimeout(LocalRule):
    """
    ## What it does
    Finds `init_process_group` and `jax.distributed.initialize` without a timeout.

    ## Why is this bad
    The default is 10 minutes for NCCL, 30 for Gloo and XLA's collectives, 5 for joining in JAX. It does not know your
    program.

    ## What happens with N processes
    A job that hangs holds all its devices for that long. A save that takes longer ends a healthy job.

    ## Known problems
    The default is good enough for many programs. The rule is off until it is selected.

    ## Use instead
    `init_process_group(..., timeout=timedelta(minutes=...))`; `allranks.init(timeout=...)`.
    """

    code, name, severity, row = "AR801", "no-timeout", "info", "timeouts"
    default = False
    cluster = "A job that hangs holds all its devices until the default timeout."
    advice = "Pass a timeout: a little longer than the longest work that one rank does while the others wait."
    words = ("init_process_group", "distributed.initialize")
    nodes = (ast.Call,)
    calls = _TIMED
    bad = (
        Example({"train.py": "import torch.distributed as dist\n\ndist.init_process_group('nccl')\n"}, at=(3,)),
        Example({"train.py": "import jax\n\njax.distributed.initialize()\n"}, at=(3,)),
    )
    good = (
        Example(
            {
                "train.py": """\
from datetime import timedelta
import torch.distributed as dist

dist.init_process_group("nccl", timeout=timedelta(minutes=5))
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or (words := _TIMED.get(name_of(node, file))) is None:
            return
        if not has_stars(node) and not any(keyword(node, word) is not None for word in words):
            yield self.local(file, node, f"{name_of(node, file).rpartition('.')[2]} without a timeout")
