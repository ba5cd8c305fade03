"""AR405: rank 0 makes what the others use, and nothing makes them wait."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Program, short
from allranks.check.queries.handovers import Handover, handovers
from allranks.check.roots import Root
from allranks.check.rule import ProgramRule
from allranks.check.sources.source import is_test
from allranks.check.traces.nodes import Span
from allranks.check.tree.syntax import EVIDENCE
from allranks.findings import Finding, Note


class MissingBarrier(ProgramRule):
    """
    ## What it does
    Finds, with nothing between at which the ranks wait, also over several functions and files:

    - a file or folder that rank 0 (or the first rank of each node) makes, copies or downloads, and that every rank then
      reads, lists or fills
    - a part that each rank writes under a name with its rank, where rank 0 then reads all parts

    ## Why is this bad
    The other ranks may be faster.

    ## What happens with N processes
    A rank that is faster than rank 0 finds no file, the file of the last run, or half of a file.

    ## Known problems
    Two paths are taken to be the same if their known parts are equal, or if one function writes them alike. A read
    under a condition that asks for files, or in a `try`, is not reported.

    ## Use instead
    A barrier between, on all ranks (`dist.barrier()`, `accelerator.wait_for_everyone()`).
    """

    code, name, severity, row = "AR405", "missing-barrier", "error", "collectives"
    cluster = "A rank that is faster than rank 0 finds no file, the file of the last run, or half of a file."
    advice = "Put a barrier that all ranks reach between what rank 0 does and what the others do."
    bad = (
        """\
import os
import torch.distributed as dist


def main(folder):
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        os.makedirs(folder)
    with open(f"{folder}/{dist.get_rank()}.txt", "w") as file:  # <-- found
        file.write("here")
""",
    )
    good = (
        """\
import os
import torch.distributed as dist


def main(folder):
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        os.makedirs(folder)
    dist.barrier()
    with open(f"{folder}/{dist.get_rank()}.txt", "w") as file:
        file.write("here")
""",
    )

    def check(self, program: Program) -> Iterator[Finding]:
        told: set[tuple[str, Span]] = set()
        for root in program.analysis.roots:
            if not root.active and not program.facts.says(root.result.path, *EVIDENCE):
                continue
            for one in handovers(root.result):
                places = {(call.path, call.span) for call in (one.made, one.read)}
                if not places & told and not is_test(one.read.path):
                    yield self._finding(program, root, one)
                    told |= places

    def _finding(self, program: Program, root: Root, one: Handover) -> Finding:
        made, read = one.made, one.read
        name = made.target or short(made.name)
        what = f"every rank uses {name} while rank 0 may still work on it"
        if one.parts:
            what = f"rank 0 goes on with {name} while other ranks may still write their parts there"
        who = "each rank does this" if one.parts else "rank 0 does this"
        notes = (Note(who, program.place(made.path, made.span)), *program.way(one.chain))
        says = program.analysis.simulator.knowledge.says
        names = [step[0].rpartition(".")[2] for step in one.chain[1:]] + [read.symbol.rpartition(".")[2]]
        once = any(says("once", word) and not says("trains", word) for word in names)
        low = once or program.analysis.starts.is_alone(root)
        place = program.place(read.path, read.span)
        return self.finding(place, read.symbol, what, notes=notes, confidence="low" if low else "high")
