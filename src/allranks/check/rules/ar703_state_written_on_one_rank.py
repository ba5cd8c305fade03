"""AR703: what one rank alone knows decides what all ranks do."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import Example, ProgramRule
from allranks.findings import Finding


class StateWrittenOnOneRank(ProgramRule):
    """
    ## What it does
    Finds a variable or attribute that is set behind a guard on the rank, and later decides on every rank whether a
    collective is called.

    ## Why is this bad
    The other ranks still have the old value.

    ## What happens with N processes
    Rank 0 notices that it should stop (no patience left, the run was cancelled) and leaves; the others go on and wait
    for it in the next collective.

    ## Known problems
    State that goes through an object that the check does not follow is not seen.
    State that all ranks set in a loop that ends by a reduced value. The rule is off unless selected: it has been wrong
    as often as right in real code.

    ## Use instead
    Broadcast the state from the rank that knows it, before anybody acts on it.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR703", "state-written-on-one-rank", "error", "collectives"
    default = False
    cluster = "One rank acts on the new value, the others on the old one: a hang, or models that drift apart."
    advice = "Broadcast it from the rank that sets it before it decides anything."
    bad = (
        Example(
            {
                "train.py": """\
import torch.distributed as dist

def main(losses):
    dist.init_process_group("nccl")
    stop = False
    if dist.get_rank() == 0:
        stop = losses[-1] > losses[0]
    if not stop:
        dist.barrier()
""",
            },
            at=(9,),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist

class Trainer:
    def __init__(self):
        self.cancelled = False

    def log(self, loss, limit):
        if dist.get_rank() == 0:
            if loss > limit:
                self.cancelled = True

    def fit(self, losses):
        for loss in losses:
            self.log(loss, 10)
            if self.cancelled:
                break
            dist.all_reduce(loss)
""",
            },
            at=(17,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import torch.distributed as dist

def main(losses):
    dist.init_process_group("nccl")
    stop = [False]
    if dist.get_rank() == 0:
        stop = [losses[-1] > losses[0]]
    dist.broadcast_object_list(stop, src=0)
    if not stop[0]:
        dist.barrier()
""",
            },
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for parting in program.divergences():
            if parting.cause == "state":
                yield self.found(
                    parting,
                    f"{parting.collective} hangs on {parting.condition}, which was set on some ranks only",
                    notes=parting.sides(),
                )
