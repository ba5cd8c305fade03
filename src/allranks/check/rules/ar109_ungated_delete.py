"""AR109: every rank deletes or renames the same path."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.queries.effects import named, ungated
from allranks.check.rule import ProgramRule
from allranks.findings import Finding


class UngatedDelete(ProgramRule):
    """
    ## What it does
    Finds a file or directory that every process deletes, renames, moves or links to.

    ## Why is this bad
    The first process removes it. The others raise `FileNotFoundError`, or remove what the first one has written since.

    ## What happens with N processes
    One of N succeeds. The others end with an error, and the job with them. Or a slow rank deletes the new file.

    ## Known problems
    A path on a disk of the node is rightly deleted once per node; declare it with `node-local-paths`. A file that every
    rank writes and then renames is reported where it is written (AR101, AR102).

    ## Use instead
    Delete on rank 0, and let the others wait at a barrier before they use the path.
    """

    code, name, severity, row = "AR109", "ungated-delete", "error", "gating"
    cluster = "One process removes it; the others raise FileNotFoundError, or remove what was written since."
    advice = "Delete, rename or link on rank 0 only, then let the others wait at a barrier."
    bad = (
        """\
import shutil
import torch.distributed as dist

dist.init_process_group("nccl")
shutil.rmtree("out")  # <-- found
""",
    )
    good = (
        """\
import shutil
import tempfile
import torch.distributed as dist

dist.init_process_group("nccl")
if dist.get_rank() == 0:
    shutil.rmtree("out")
mine = tempfile.mkdtemp()
shutil.rmtree(mine)
""",
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for root, reach in ungated(program.analysis, "delete"):
            does = "makes the link" if "link" in reach.call.name and "un" not in reach.call.name else "deletes or moves"
            yield self.effect(program, root, reach, f"every rank {does} {named(reach)}")
