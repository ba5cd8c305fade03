"""AR211: ranks call the same collectives in another order."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Program, condition
from allranks.check.rule import ProgramRule
from allranks.findings import Finding


class CollectiveOrderDiffers(ProgramRule):
    """
    ## What it does
    Finds branches on the rank whose sides call the same collectives, in different orders.

    ## Why is this bad
    Collectives are matched by order, not by name.

    ## What happens with N processes
    The first collective of one rank matches the second of another. Measured: 11 and 11 where 2 and 20 was right, and
    101 for 200, without an error.

    ## Known problems
    As for AR201.

    ## Use instead
    Call them in one order on all ranks, outside the branch.
    """

    code, name, severity, row = "AR211", "collective-order-differs", "error", "collectives"
    cluster = (
        "The first collective of one rank matches the second of another: wrong numbers without an error, or a hang."
    )
    advice = "Call them in one order on every rank."
    bad = (
        """\
import torch.distributed as dist

def step(x, y):
    if dist.get_rank() == 0:
        dist.all_reduce(x)
        dist.broadcast(y, 0)
    else:
        dist.broadcast(y, 0)  # <-- found
        dist.all_reduce(x)
""",
    )
    good = (
        """\
import torch.distributed as dist

def step(x, y):
    if dist.get_rank() == 0:
        dist.all_reduce(x)
        dist.broadcast(y, 0)
    else:
        dist.all_reduce(x)
        dist.broadcast(y, 0)
""",
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for root, parted in program.divergences("order"):
            message = f"ranks call the same collectives in different orders, depending on {condition(parted)}"
            yield self.divergence(program, root, parted, message)
