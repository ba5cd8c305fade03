"""AR103: every rank starts a run of the experiment tracker."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Program, short
from allranks.check.queries.effects import ungated
from allranks.check.rule import ProgramRule
from allranks.findings import Finding


class UngatedTracker(ProgramRule):
    """
    ## What it does
    Finds a tracker (`wandb.init`, `SummaryWriter`, `mlflow.start_run`, ...) that every process starts or uses.

    ## Why is this bad
    One training becomes N runs, or N event files that a viewer draws over each other.

    ## What happens with N processes
    N runs are made, each with the metrics of one rank.

    ## Known problems
    N runs in one group can be intended. Ignore the finding there, with the reason.

    ## Use instead
    Start it on rank 0, or pass `mode="disabled"` on the others, so that the rest of the code needs no guard.
    """

    code, name, severity, row = "AR103", "ungated-tracker", "warning", "gating"
    cluster = "N runs are made, one for each process."
    advice = "Start it on rank 0 only, or disable it elsewhere (wandb: mode='disabled')."
    bad = (
        """\
import torch.distributed as dist
import socket
import wandb

dist.init_process_group("nccl")
wandb.init(project="p", notes=socket.gethostname())  # <-- found
""",
    )
    good = (
        """\
import torch.distributed as dist
import wandb
from torch.utils.tensorboard import SummaryWriter

dist.init_process_group("nccl")
wandb.init(project="p", mode="online" if dist.get_rank() == 0 else "disabled")
writer = SummaryWriter("runs") if dist.get_rank() == 0 else None
if writer is not None:
    writer.add_scalar("loss", 1.0)
""",
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for root, reach in ungated(program.analysis, "tracker"):
            yield self.effect(program, root, reach, f"every rank calls {short(reach.call.name)}")
