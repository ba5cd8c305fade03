"""AR204: some ranks alone run a model that all ranks share."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Program, computes, condition, short
from allranks.check.rule import ProgramRule
from allranks.findings import Finding


class ParallelComputationUnderRankGuard(ProgramRule):
    """
    ## What it does
    Finds the forward or backward pass, or the construction, of a wrapped model (DDP, FSDP, a DeepSpeed engine) that
    only some ranks reach: behind a rank guard, or after the others have returned. With JAX, a computation over the
    devices of all processes.

    ## Why is this bad
    A wrapped model communicates whenever it runs: it gathers parameters, sends buffers, reduces gradients. A JAX
    computation on the devices of all processes starts when all of them call it.

    ## What happens with N processes
    With FSDP and DeepSpeed, rank 0 waits for parameters that no rank sends. With DDP it waits for the buffers, or its
    pass matches the next step of the others: measured, a training loss that is silently wrong. So it is with JAX.

    ## Known problems
    DDP's forward pass sends buffers (for example those of BatchNorm) if gradients are on, and once more in the first
    pass under `no_grad` after a step of training. Passes under `no_grad` are not reported. In JAX, arrays that are
    sharded by a tree of shardings, or come from a checkpoint, are not known.

    ## Use instead
    Run it on all ranks and guard what is done with the result: gather above the guard, write below it; reduce above the
    guard, print below it. With DDP, run the module inside (`model.module`).
    """

    code, name, severity, row = "AR204", "parallel-computation-under-rank-guard", "error", "collectives"
    cluster = "The ranks that run it wait for the others, or match their next step and compute wrong numbers."
    advice = "Run it on every rank. With DDP, model.module may run on one rank in evaluation."
    bad = (
        """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(loader):
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(2, 2))
    if dist.get_rank() == 0:
        evaluate(model, loader)  # <-- found

def evaluate(model, loader):
    for x in loader:
        print(model(x))

main(load())
""",
    )
    good = (
        """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(x):
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(2, 2))
    y = model(x)
    if dist.get_rank() == 0:
        print(y, model.module(x))

main(1)
""",
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for root, parted in program.divergences("rank", "return"):
            if computes(parted):
                computation = f"{short(parted.call.name)} ({parted.call.entry.op})"
                message = f"{computation} is not reached by every rank: it depends on {condition(parted)}"
                yield self.divergence(program, root, parted, message)
