"""AR103: every rank starts a run of the experiment tracker."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Event, Program
from allranks.check.rule import Example, ProgramRule
from allranks.check.tables.effects import STARTS
from allranks.findings import Finding

_NO_RUN = "Only some ranks have started a run: the others stop here with an error, and those wait for them."
_STOPS = "The other ranks stop with an error, and rank 0 waits for them in its next collective."
_ASK = "Check whether there is one (`if writer is not None`), or give the others one that does nothing."
# What is said of a run, and names none.
_READ = ("notes", "tags")


class UngatedTracker(ProgramRule):
    """
    ## What it does
    Finds a tracker (`wandb.init`, `SummaryWriter`, `mlflow.start_run`, ...) that every process starts. Also one that
    every process uses although only rank 0 has one.

    ## Why is this bad
    One training becomes N runs, or N event files that a viewer draws over each other.

    ## What happens with N processes
    N runs are made, each with the metrics of one rank.

    ## Known problems
    N runs in one group can be intended. Ignore the finding there, with the reason.

    ## Use instead
    Start it on rank 0, or pass `mode="disabled"` on the others, so that the rest of the code needs no guard.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR103", "ungated-tracker", "warning", "gating"
    cluster = "N runs are made, one for each process."
    advice = "Start it on rank 0 only, or disable it elsewhere (wandb: mode='disabled')."
    bad = (
        Example(
            {
                "train.py": """\
import torch.distributed as dist
import socket
import wandb

dist.init_process_group("nccl")
wandb.init(project="p", notes=socket.gethostname())
"""
            },
            at=(6,),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter
from images import write

def main(epochs):
    dist.init_process_group("nccl")
    writer = None
    if dist.get_rank() == 0:
        writer = SummaryWriter("runs")
    for epoch in range(epochs):
        write(writer, epoch)

main(3)
""",
                "images.py": """\
def write(writer, epoch):
    writer.add_image("sample", epoch)
""",
            },
            at=(2,),
            where="images.py",
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter

def main(epochs, often):
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        writer = SummaryWriter("runs")
    for epoch in range(epochs):
        if often:
            writer.add_scalar("epoch", epoch)

main(3, True)
"""
            },
            at=(10,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import torch.distributed as dist
import wandb
from runs import begin

dist.init_process_group("nccl")
begin("p", group="all")
wandb.log({"loss": 0.0})
""",
                "runs.py": """\
import torch.distributed as dist
import wandb

def begin(project, group):
    wandb.init(project=project, group=group, name=f"process {dist.get_rank()}")
""",
                "finetune.py": """\
import torch.distributed as dist
import wandb
from runs import begin

dist.init_process_group("nccl")
if dist.get_rank() == 0:
    begin("p", group="tuned")
    wandb.log({"loss": 0.0})
""",
            }
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter

def main():
    dist.init_process_group("nccl")
    writer = SummaryWriter("runs") if dist.get_rank() == 0 else None
    if writer is not None:
        writer.add_scalar("loss", 1.0)
    if dist.get_rank() == 0:
        writer.add_scalar("loss", 1.0)
"""
            }
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
import wandb

dist.init_process_group("nccl")
wandb.init(project="p", mode="online" if dist.get_rank() == 0 else "disabled")
wandb.init(project="p", name=f"run-{dist.get_rank()}", notes="all")
if dist.get_rank() == 0:
    wandb.init(project="q")
"""
            }
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        trackers = tuple(program.ungated("tracker"))
        starts = {(e.place.path, e.name.rpartition(".")[0]) for e in trackers if e.name.endswith(STARTS)}
        begun = any(e.name == "wandb.init" and e.roles and not e.everyone for e in program.effects("tracker"))
        own = [e for e in program.effects("tracker") if e.everyone and e.name.endswith(STARTS) and _ranked(e)]
        muted = {e.name.rpartition(".")[0] for e in program.effects("muted") if not e.everyone or _ranked(e)}
        for event in trackers:
            owner, _, word = event.name.rpartition(".")
            if word == "finish":  # of a run that is not there it does nothing
                continue
            if word not in STARTS and (owner in muted or (event.place.path, owner) in starts):
                continue  # it does nothing where it must not, or one fault: the run that every rank starts
            if _ranked(event) or (word not in STARTS and _has_its_own(event, own, program)):
                continue
            alone = begun and owner == "wandb" and word not in STARTS
            yield self.found(event, f"every rank calls {event.name}", cluster=_NO_RUN if alone else self.cluster)
        for event in program.effects("absent"):
            if event.active and event.everyone and not event.ordered:
                what = f"every rank calls {event.name}, and only rank 0 has {event.target}"
                yield self.found(event, what, cluster=_STOPS, advice=_ASK)


def _has_its_own(event: Event, started: list[Event], program: Program) -> bool:
    """Whether its program has each process start a run of its own, called after the process."""
    owner = event.name.rpartition(".")[0]
    places = {e.place.path for e in started if e.name.rpartition(".")[0] == owner}
    return not places.isdisjoint(program.facts.around(event.start.place.path)) if places else False


def _ranked(event: Event) -> bool:
    """Whether something that it is given differs from rank to rank, but what people read."""
    told = (value for name, value in event.keywords if name not in _READ)
    return any(value.ranked for value in (*event.arguments, *told))
