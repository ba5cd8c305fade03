"""AR201: some ranks call a collective that the others do not."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Program, computes, condition, short
from allranks.check.rule import ProgramRule
from allranks.findings import Finding

_GROUPS = "Call new_group on every process for each group, also for groups without this process."


class CollectiveUnderRankGuard(ProgramRule):
    """
    ## What it does
    Compares which collectives each rank calls next. If a branch on the rank makes some processes call a collective that
    the others do not call, it names the first call that they do not share.

    ## Why is this bad
    A collective waits for every process of its group.

    ## What happens with N processes
    The ranks inside the guard wait for the others until a timeout (torch: 10 minutes with NCCL, 30 with Gloo). Or their
    call matches the others' next collective, and both compute wrong numbers, without an error.

    ## Known problems
    Sub-groups are distinguished by the presence of a group argument, not by their members. A gather for a sharded model
    (`accelerator.get_state_dict`) counts if the project names FSDP or DeepSpeed.

    ## Use instead
    Call the collective on every rank, and put the guard around what is done with the result.
    """

    code, name, severity, row = "AR201", "collective-under-rank-guard", "error", "collectives"
    cluster = (
        "The ranks inside the guard wait for the others, or match their next collective and compute wrong numbers."
    )
    advice = "Call it on every rank, and guard only what is done with the result."
    bad = (
        """\
import torch.distributed as dist

dist.init_process_group("nccl")
if dist.get_rank() == 0:
    dist.barrier()  # <-- found
""",
    )
    good = (
        """\
import torch.distributed as dist

dist.init_process_group("nccl")
dist.barrier()
if dist.get_rank() == 0:
    print("ready")
    dist.barrier()
else:
    dist.barrier()
""",
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for root, parted in program.divergences("rank"):
            if not computes(parted):
                message = f"{short(parted.call.name)} is not reached by every rank: it depends on {condition(parted)}"
                of_groups = parted.call.entry.op in ("new_group", "new_subgroups")
                yield self.divergence(program, root, parted, message, advice=_GROUPS if of_groups else None)
