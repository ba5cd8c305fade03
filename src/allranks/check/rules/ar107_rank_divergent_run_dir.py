"""AR107: each rank names the folder of the run for itself."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.queries.effects import named, named_by_each
from allranks.check.rule import ProgramRule
from allranks.findings import Finding


class RankDivergentRunDir(ProgramRule):
    """
    ## What it does
    Finds a folder, file, checkpoint or tracker whose name each process makes for itself, from a clock or a random
    number, and that every process makes or opens. Of folders also those that are numbered after what is there. One
    function has one finding.

    ## Why is this bad
    Processes start at slightly different times. A name with seconds in it, or the number of existing runs, differs
    between them.

    ## What happens with N processes
    One run leaves several folders, each with some of its files. A checkpoint whose shards are in two folders cannot be
    loaded.

    ## Known problems
    A name that only rank 0 uses in the end is not reported. A name that `strftime` makes from the date only differs at
    midnight only, and is reported.

    ## Use instead
    Let rank 0 choose the name and broadcast it, or take it from the launcher (an environment variable, an option).
    """

    code, name, severity, row = "AR107", "rank-divergent-run-dir", "warning", "checkpoint save"
    cluster = "Ranks that start a second apart choose different folders, and the files of a run are divided among them."
    advice = "Choose the name on rank 0 and broadcast it, or let the launcher pass it to all."
    bad = (
        """\
import os
from datetime import datetime
import torch.distributed as dist

def main():
    dist.init_process_group("nccl")
    stamp = datetime.now().strftime("%m%d-%H%M%S")
    run = os.path.join("runs", stamp)
    os.makedirs(run, exist_ok=True)  # <-- found

main()
""",
    )
    good = (
        """\
import os
import time
import torch.distributed as dist

dist.init_process_group("nccl")
box = [time.strftime("%m%d-%H%M%S")]
dist.broadcast_object_list(box, src=0)
os.makedirs(os.path.join("runs", box[0]), exist_ok=True)
""",
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for root, reach in named_by_each(program.analysis, "mkdir", "folder", "checkpoint", "file", "tracker"):
            yield self.effect(program, root, reach, f"each rank chooses {named(reach)} for itself")
