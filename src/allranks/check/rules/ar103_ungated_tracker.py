"""AR103: every rank starts a run of the experiment tracker."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Event, Program
from allranks.check.rule import Example, ProgramRule
from allranks.check.tables.effects import STARTS
from allranks.findings import Finding


class UngatedTracker(ProgramRule):
    """
    ## What it does
    Finds a tracker (`wandb.init`, `SummaryWriter`, `mlflow.start_run`, ...) that every process starts.

    ## Why is this bad
    One training becomes N runs, or N event files that a viewer draws over each other.

    ## What happens with N processes
    N runs are made, each with the metrics of one rank; those of rank 0 are only one of them.

    ## Known problems
    N runs in one group can be meant. Ignore the finding there, with the reason.

    ## Use instead
    Start it on rank 0, or pass `mode="disabled"` elsewhere, so that the rest of the code needs no guard.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR103", "ungated-tracker", "warning", "gating"
    cluster = "N runs are made, one for each process."
    advice = "Start it on rank 0 only, or disable it elsewhere (mode='disabled')."
    bad = (
        Example(
            {
                "train.py": """\
import torch.distributed as dist
import wandb

dist.init_process_group("nccl")
wandb.init(project="p")
"""
            },
            at=(5,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import torch.distributed as dist
import wandb

dist.init_process_group("nccl")
wandb.init(project="p", mode="online" if dist.get_rank() == 0 else "disabled")
if dist.get_rank() == 0:
    wandb.init(project="q")
"""
            }
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        trackers = tuple(program.ungated("tracker"))
        starts = {(e.place.path, e.name.rpartition(".")[0]) for e in trackers if e.name.endswith(STARTS)}
        muted = {e.name.rpartition(".")[0] for e in program.effects("muted") if not e.everyone or _ranked(e)}
        for event in trackers:
            owner, _, word = event.name.rpartition(".")
            if word == "finish":  # of a run that is not there it does nothing
                continue
            if word not in STARTS and (owner in muted or (event.place.path, owner) in starts):
                continue  # it does nothing where it must not, or one fault: the run that every rank starts
            if not _ranked(event):
                yield self.found(event, f"every rank calls {event.name}")


def _ranked(event: Event) -> bool:
    """Whether something that it is given differs from rank to rank."""
    return any(value.ranked for value in (*event.arguments, *(v for _, v in event.keywords)))
