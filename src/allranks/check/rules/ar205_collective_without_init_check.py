"""AR205: a collective in a program that may run without a process group."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.collectives import collective
from allranks.check.tree.syntax import inside, name_of, own
from allranks.findings import Finding

_MAKES = "torch.distributed.init_process_group"


class CollectiveWithoutInitCheck(LocalRule):
    """
    ## What it does
    Finds a collective without a condition in a function that makes the process group under a condition
    (`if args.distributed: dist.init_process_group("nccl")`).

    ## Why is this bad
    If the group was not made, the collective raises.

    ## What happens with N processes
    Nothing: this is a fault of the run with one process. The program with which people debug stops at a barrier.

    ## Known problems
    If the group is made elsewhere for the other case, the finding is wrong.

    ## Use instead
    `if dist.is_initialized(): dist.barrier()`.
    """

    code, name, severity, row = "AR205", "collective-without-init-check", "warning", "collectives"
    cluster = "A run of one process stops here: there is no process group."
    advice = "Check dist.is_initialized() first, or make a group of one."
    nodes = (ast.FunctionDef,)
    words = ("init_process_group",)
    bad = (
        """\
import torch.distributed as dist


def main(args):
    if args.distributed:
        dist.init_process_group("nccl")
    train(args)
    dist.barrier()  # <-- found
""",
    )
    good = (
        """\
import torch.distributed as dist


def main(args):
    if args.distributed:
        dist.init_process_group("nccl")
    train(args)
    if dist.is_initialized():
        dist.barrier()


def other(args):
    if not dist.is_initialized():
        dist.init_process_group("nccl")
    dist.barrier()


def third(args):
    if args.distributed:
        dist.init_process_group("nccl")
    else:
        dist.init_process_group("gloo", rank=0, world_size=1)
    dist.barrier()
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        calls = sorted((at for at in own(node) if isinstance(at, ast.Call)), key=lambda at: at.lineno)
        makers = [call for call in calls if name_of(call, file) == _MAKES]
        if len(makers) != 1 or (test := _condition(makers[0], file)) is None or "initialized" in ast.unparse(test):
            return
        for call in calls:
            is_plain = call.lineno > makers[0].lineno and _condition(call, file) is None
            if (
                is_plain
                and (entry := collective(call, file)) is not None
                and entry.name.startswith("torch.distributed.")
            ):
                called = entry.name.rpartition(".")[2]
                yield self.local(file, call, f"{called} is called also where no process group was made")
                return


def _condition(call: ast.Call, file: File) -> ast.expr | None:
    """Return the nearest condition, or what is tried, around a call in its function."""
    for parent, _ in inside(call, file):
        if isinstance(parent, ast.If | ast.IfExp | ast.While):
            return parent.test
        if isinstance(parent, ast.Try | ast.For | ast.With):
            return ast.Constant(True)
    return None
