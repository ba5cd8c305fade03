"""AR102: every rank writes the same file."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.queries.effects import named, ungated, writes
from allranks.check.rule import ProgramRule
from allranks.findings import Finding


class UngatedFileWrite(ProgramRule):
    """
    ## What it does
    Finds a file (a log, a table, a figure, a JSON file) that every process writes under the same name, or uploads.

    ## Why is this bad
    The processes overwrite each other, or their lines are mixed.

    ## What happens with N processes
    N processes open one file. With mode `w` the last one to open it truncates what the others wrote. With mode `a` each
    line is in the file N times, in no order.

    ## Known problems
    A path that only the launcher makes different for each process is not seen: suppress that finding with a comment.
    Confidence is low for files that all ranks append to.

    ## Use instead
    Write on rank 0, or put the rank into the name.
    """

    code, name, severity, row = "AR102", "ungated-file-write", "warning", "gating"
    cluster = "N processes write this file at the same time: they overwrite each other, or their lines are mixed."
    advice = "Write on rank 0 only, or put the rank into the file's name."
    bad = (
        """\
import json
import jax

jax.distributed.initialize()
with open("metrics.json", "w") as file:  # <-- found
    json.dump({}, file)
""",
    )
    good = (
        """\
import json
import torch.distributed as dist
from huggingface_hub import upload_folder

dist.init_process_group("nccl")
with open(f"metrics-{dist.get_rank()}.json", "w") as file:
    json.dump({}, file)
if dist.get_rank() == 0:
    upload_folder(repo_id="me/model", folder_path="out")
""",
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for root, reach, what in writes(program.analysis):
            if what == "file":
                low = reach.call.kind == "append"
                yield self.effect(program, root, reach, f"every rank writes the file {named(reach)}", low=low)
        for root, reach in ungated(program.analysis, "publish"):
            yield self.effect(program, root, reach, f"every rank uploads by {named(reach)}")
