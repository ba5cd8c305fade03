"""AR405: rank 0 makes what the others use, and nothing makes them wait."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.handovers import handovers
from allranks.check.tree.syntax import distributed
from allranks.findings import Finding, Note


class MissingBarrier(LocalRule):
    """
    ## What it does
    Finds, in one function, with nothing between at which the ranks wait:

    - a file or folder that rank 0 makes, copies, removes or downloads, and that every rank then reads, lists or fills
    - a part that each rank writes under a name of its own, where rank 0 then reads all parts, or marks them as complete

    ## Why is this bad
    The other ranks may be faster.

    ## What happens with N processes
    A rank that is faster than rank 0 finds no file, the file of the last run, or half of a file.

    ## Known problems
    Any call between that is named as if it waited for others (`init`, `train`, `sync`) hides the fault.

    ## Use instead
    A barrier between, on all ranks (`dist.barrier()`, `accelerator.wait_for_everyone()`).
    """

    code, name, severity, row = "AR405", "missing-barrier", "error", "collectives"
    cluster = "A rank that is faster than rank 0 finds no file, the file of the last run, or half of a file."
    advice = "Put a barrier that all ranks reach between what rank 0 does and what the others do."
    words = ("rank", "main", "process", "chief", "master", "primary")
    nodes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)
    bad = (
        Example(
            {
                "train.py": """\
import os
import torch.distributed as dist


def main(folder):
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        os.makedirs(folder)
    with open(f"{folder}/{dist.get_rank()}.txt", "w") as file:
        file.write("here")
"""
            },
            at=(9,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import os
import torch.distributed as dist


def main(folder):
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        os.makedirs(folder)
    dist.barrier()
    with open(f"{folder}/{dist.get_rank()}.txt", "w") as file:
        file.write("here")
"""
            }
        ),
    )

    def applies(self, file: File) -> bool:
        return not file.is_test and distributed(file)

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        for one in handovers(node, file):
            if one.parts:
                what = f"rank 0 goes on with {one.name} while other ranks may still write their parts there"
            else:
                what = f"every rank uses {one.name} while rank 0 may still work on it"
            notes = [Note("each rank does this" if one.parts else "rank 0 does this", file.place(one.made))]
            yield self.finding(file.place(one.read), file.symbol(one.read), what, notes=notes)
