"""AR501: one rank loads, the others keep what they were made with."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import Example, ProgramRule
from allranks.findings import Finding

# The model was made alike on all ranks before the load...
_WRAPS = ("construction", "prepare", "deepspeed.initialize", "broadcast_parameters")
# ...and what makes the ranks alike again, if it comes after the load.
_SHARES = ("broadcast", "construction", "prepare", "initialize", "scatter", "state_dict", "all_gather", "setup")


class LoadOnOneRank(ProgramRule):
    """
    ## What it does
    Finds a `load_state_dict` that only rank 0 reaches, after the model was wrapped, with nothing after it that sends
    what was loaded to the others: no wrapping in DDP or FSDP, no broadcast.

    ## Why is this bad
    The wrapper copies rank 0's parameters once, when it is made. What is loaded later stays where it is.

    ## What happens with N processes
    Rank 0 goes on from the checkpoint, the others from fresh weights. Gradients are averaged over different models, and
    the loss looks merely bad.

    ## Known problems
    A project's own function that sends parameters around without a collective that the check knows.
    A model that is built to be saved, not trained. The rule is off unless selected: it has been wrong in real code,
    and not yet right.

    ## Use instead
    Load on every rank, or load on rank 0 before the model is wrapped.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR501", "load-on-one-rank", "error", "checkpoint load"
    default = False
    cluster = "Rank 0 goes on from the checkpoint and the others from fresh weights."
    advice = "Load on every rank, or on rank 0 before the wrapper (DDP, FSDP with sync_module_states) is made."
    bad = (
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(path):
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(2, 2))
    if dist.get_rank() == 0:
        model.module.load_state_dict(torch.load(path))
"""
            },
            at=(9,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(path):
    dist.init_process_group("nccl")
    model = torch.nn.Linear(2, 2)
    if dist.get_rank() == 0:
        restore(model, path)
    model = DDP(model)

def restore(model, path):
    model.load_state_dict(torch.load(path))

def resume(model, optimizer, path):
    optimizer.load_state_dict(torch.load(path))
"""
            }
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for event in program.effects("restore"):
            alone = event.roles == {"first"} and event.may == {"first"}
            wrapped = any(word in op for op in event.earlier for word in _WRAPS)
            if event.active and alone and wrapped and not any(word in op for op in event.later for word in _SHARES):
                yield self.found(
                    event, f"{event.target or event.name} is loaded on rank 0 alone, and never sent to the others"
                )
