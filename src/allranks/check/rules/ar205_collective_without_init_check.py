"""AR205: a collective in a program that may run without a process group."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.syntax import asks_rank, inside, leaves, name_of, own, speaks_of
from allranks.findings import Finding

_INIT = "torch.distributed.init_process_group"
_MEETINGS = tuple(
    f"torch.distributed.{word}"
    for word in ("barrier", "all_reduce", "all_gather", "broadcast", "all_gather_object", "broadcast_object_list")
)
_ASKS = re.compile(
    r"distributed|world_size|is_initialized|is_available|ddp|fsdp|multi|n_?gpus?|num_gpus|rank|parallel", re.I
)


class CollectiveWithoutInitCheck(LocalRule):
    """
    ## What it does
    Finds a collective without a condition, in a function that makes the process group under a condition.

    ## Why is this bad
    Where the group was not made, the collective raises.

    ## What happens with N processes
    Nothing: this is the fault of the run with one. The program that people debug with stops at a barrier.

    ## Known problems
    Where the group is made elsewhere for the other case, the finding is wrong.

    ## Use instead
    `if dist.is_initialized(): dist.barrier()`.
    """

    code, name, severity, row = "AR205", "collective-without-init-check", "warning", "collectives"
    cluster = "A run of one process stops here: there is no process group."
    advice = "Ask dist.is_initialized() first, or make a group of one."
    words = ("init_process_group",)
    nodes = (ast.FunctionDef,)
    bad = (
        Example(
            {
                "train.py": """\
import torch.distributed as dist


def main(args):
    if args.distributed:
        dist.init_process_group("nccl")
    train(args)
    dist.barrier()
"""
            },
            at=(8,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
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
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.FunctionDef):
            return
        made = [s for s in node.body if isinstance(s, ast.If) and _makes(s.body, file)]
        if len(made) != 1 or _makes(made[0].orelse, file) or speaks_of(made[0].test, re.compile("is_initialized")):
            return
        if (made[0].orelse and leaves(made[0].orelse)) or asks_rank(made[0].test):
            return
        for at in own(node):
            after = getattr(at, "lineno", 0) > (made[0].end_lineno or 0)
            if after and isinstance(at, ast.Call) and name_of(at, file) in _MEETINGS and not _is_asked(at, file):
                yield self.local(
                    file, at, f"{name_of(at, file).rpartition('.')[2]} is called also where no process group was made"
                )


def _makes(block: list[ast.stmt], file: File) -> bool:
    return any(isinstance(at, ast.Call) and name_of(at, file) == _INIT for s in block for at in [s, *own(s)])


def _is_asked(call: ast.Call, file: File) -> bool:
    return any(isinstance(p, ast.If | ast.IfExp) and speaks_of(p.test, _ASKS) for p, _ in inside(call, file))
