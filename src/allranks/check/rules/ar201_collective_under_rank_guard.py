"""AR201: some ranks call a collective that the others do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from allranks.check.program import PARALLEL, Divergence, Program
from allranks.check.rule import Example, ProgramRule
from allranks.findings import Finding

_GROUPS = "Call new_group on every process for each group, also for groups without this process."


class CollectiveUnderRankGuard(ProgramRule):
    """
    ## What it does
    Compares which collectives each rank calls next. If a branch on the rank makes some processes call a collective that
    the others do not call, it names the first call that they do not share. It also finds a loop with a collective over
    `range(start, end)` where only some ranks have set `start` or `end`.

    ## Why is this bad
    A collective waits for every process of its group.

    ## What happens with N processes
    The ranks inside the guard wait for the others until a timeout (torch: 10 minutes with NCCL, 30 with Gloo). Or their
    call matches the others' next collective, and both compute wrong numbers, without an error.

    ## Known problems
    Sub-groups are distinguished by the presence of a group argument, not by their members. A collective that depends on
    data only, two conditions or two calls below the guard, is not found. A gather for a sharded model
    (`accelerator.get_state_dict`) counts if the project names FSDP or DeepSpeed.

    Ranks that run separate functions to the end count as programs that answer each other. Files that import
    `torch.distributed.rpc` are not checked. If both sides make the same next calls in the same order, and only loops
    and conditions differ, confidence is low.

    ## Use instead
    Call the collective on every rank, and put the guard around what is done with the result.

    ## Fix safety
    There is no automatic fix: only the author knows which side is right.
    """

    code, name, severity, row = "AR201", "collective-under-rank-guard", "error", "collectives"
    cluster = (
        "The ranks inside the guard wait for the others, or match their next collective and compute wrong numbers."
    )
    advice = "Call it on every rank, and guard only what is done with the result."
    bad = (
        Example(
            {
                "train.py": """\
import torch.distributed as dist

dist.init_process_group("nccl")
if dist.get_rank() == 0:
    dist.barrier()
""",
            },
            at=(5,),
        ),
        Example(
            {
                "train.py": """\
from ranks import is_main
from metrics import mean

def log(loss):
    if is_main():
        print(mean(loss))
""",
                "ranks.py": """\
import torch.distributed as dist

def is_main():
    return not dist.is_initialized() or dist.get_rank() == 0
""",
                "metrics.py": """\
from torch.distributed import all_reduce as reduce

def mean(x):
    reduce(x)
    return x
""",
            },
            at=(6,),
        ),
        Example(
            {
                "train.py": """\
import os
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
start = 0
if dist.get_rank() == 0 and os.path.exists("last.pt"):
    start = torch.load("last.pt")["epoch"] + 1
for epoch in range(start, 10):
    dist.barrier()
""",
            },
            at=(10,),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from torchmetrics import MeanMetric
from torchmetrics.aggregation import BaseAggregator

class Last(BaseAggregator):
    def compute(self):
        return self.value

class Method:
    def add(self, losses):
        self.means = {name: MeanMetric() for name in losses}

    def end(self):
        if self.rank == 0:
            print({name: mean.compute() for name, mean in self.means.items()})

def main():
    dist.init_process_group("nccl")
    last = Last()
    if dist.get_rank() == 0:
        print(last.compute())
""",
            },
            at=(15, 21),
        ),
        Example(
            {
                "train.py": """\
from lightning.pytorch import Trainer

def main(options, model):
    trainer = Trainer(strategy="ddp", **options)
    trainer.fit(model)
    if trainer.global_rank == 0:
        trainer.save_checkpoint("last.ckpt")
""",
            },
            at=(7,),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed
import lib.nccl.distributed as dist
from lib.pipeline import make_groups

def mean(loss, dp_group):
    if dp_group.rank() == 0:
        dist.all_reduce(loss, group=dp_group)
    return loss

def main(loss):
    torch.distributed.init_process_group("nccl")
    dp_group, pp_group = make_groups(2)
    print(mean(loss, dp_group))
""",
            },
            at=(7,),
        ),
    )
    good = (
        # The last stage of a pipeline asks those of other pipelines, by a library's copy of torch.distributed.
        Example(
            {
                "train.py": """\
import torch.distributed
import lib.nccl.distributed as dist
from lib.pipeline import make_groups

def mean(loss, dp_group, pp_group):
    if pp_group.rank() == pp_group.size() - 1:
        dist.all_reduce(loss, group=dp_group)
    dist.all_reduce(loss, group=pp_group)
    return loss

def main(loss):
    torch.distributed.init_process_group("nccl")
    dp_group, pp_group = make_groups(2)
    print(mean(loss, dp_group, pp_group))
""",
            },
        ),
        # An option of a Lightning whose Trainer saves without a barrier.
        Example(
            {
                "train.py": """\
from pytorch_lightning import Trainer

def main(options, model):
    options["distributed_backend"] = "ddp"
    trainer = Trainer(**options)
    trainer.fit(model)
    if trainer.global_rank == 0:
        trainer.save_checkpoint("last.ckpt")
""",
            },
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist

dist.init_process_group("nccl")
if dist.get_rank() != 0:
    dist.barrier()
print("load")
if dist.get_rank() == 0:
    dist.barrier()
if dist.get_world_size() > 1:
    dist.barrier()
""",
            },
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist

def share(x):
    if dist.get_rank() == 0:
        dist.broadcast(x, 0)
    else:
        dist.broadcast(x, src=0)
""",
            },
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for parting in program.divergences():
            if _saves_alone(parting, program):
                continue
            if parting.cause == "rank" and parting.op not in PARALLEL and not _goes_on_alone(parting):
                found = self.found(
                    parting,
                    f"{parting.named} is not reached by every rank: it depends on {parting.condition}",
                    advice=_GROUPS if parting.op == "new_group" else None,
                    notes=parting.sides(),
                )
                yield found if parting.traces else replace(found, confidence="low")
            elif parting.cause == "rounds" and parting.op not in PARALLEL:
                yield self.found(parting, f"{parting.named} is in a loop whose bounds only some ranks have set")


def _goes_on_alone(parting: Divergence) -> bool:
    """The others leave the group, and rank 0 works on without them: what it does afterwards needs nobody."""
    first = [ops for who, ops in parting.traces if "rank 0" in who]
    return parting.op == "destroy_process_group" and not any(parting.op in ops for ops in first)


def _saves_alone(parting: Divergence, program: Program) -> bool:
    """Lightning's Trainer saved without any barrier before 1.5."""
    saves = parting.collective == "lightning.pytorch.Trainer.save_checkpoint"
    return saves and program.facts.uses_old_lightning(parting.guard.path)
