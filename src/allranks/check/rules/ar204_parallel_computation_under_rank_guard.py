"""AR204: some ranks alone run a model that all ranks share."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import PARALLEL, Divergence, Program
from allranks.check.rule import Example, ProgramRule
from allranks.check.tables.arrays import COMPUTATION
from allranks.findings import Finding


class ParallelComputationUnderRankGuard(ProgramRule):
    """
    ## What it does
    Finds the forward or backward pass, or the construction, of a wrapped model (DDP, FSDP, a DeepSpeed engine) that
    only some ranks reach: behind a guard on the rank, or after an early return of the others.

    ## Why is this bad
    A wrapped model talks to the other processes whenever it runs: it gathers parameters, sends buffers, reduces
    gradients.

    ## What happens with N processes
    With FSDP and DeepSpeed, rank 0 waits for parameters that nobody sends. With DDP it waits for the buffers, or
    meets the next step of the others: measured, a training loss that is silently wrong.

    ## Known problems
    DDP without buffers and without gradients is silent in evaluation; the finding stands all the same.

    ## Use instead
    Run it on all ranks and guard what is done with the result, or run the module inside (`model.module`) where DDP
    wraps it.

    ## Fix safety
    There is no automatic fix: `model.module` is right for DDP alone.
    """

    code, name, severity, row = "AR204", "parallel-computation-under-rank-guard", "error", "collectives"
    cluster = "The ranks that run it wait for the others, or meet their next step and compute wrong numbers."
    advice = "Run it on every rank; for DDP in evaluation, model.module may run on one rank."
    bad = (
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(loader):
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(2, 2))
    if dist.get_rank() == 0:
        evaluate(model, loader)

def evaluate(model, loader):
    for x in loader:
        print(model(x))
""",
            },
            at=(9,),
        ),
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def main(x):
    model = FSDP(torch.nn.Linear(2, 2))
    if dist.get_rank() != 0:
        return
    model(x)
""",
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

def main(x):
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(2, 2))
    y = model(x)
    if dist.get_rank() == 0:
        print(y, model.module(x))
""",
            },
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for parting in program.divergences():
            if parting.cause in ("rank", "return") and parting.op in PARALLEL and not _roles_by_design(parting):
                yield self.found(
                    parting,
                    f"{parting.op} is not reached by every rank: it hangs on {parting.condition}",
                    notes=parting.sides(),
                )


def _roles_by_design(parting: Divergence) -> bool:
    """Processes that answer each other with computations: a controller and its workers."""
    return all(COMPUTATION in ops for _, ops in parting.traces)
