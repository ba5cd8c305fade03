"""AR209: a process leaves a round of a loop by its rank, its own loss or data, or because it failed."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Program, condition, reads_alike, short
from allranks.check.rule import ProgramRule
from allranks.findings import Finding

_WAITS = "One process leaves, and the others wait for it in the collective."


class RankLocalLoopExit(ProgramRule):
    """
    ## What it does
    Finds steps of training that only one process skips or ends, before a backward pass or another collective:

    - a `break`, `continue` or `return` that depends on its own loss (a NaN, a KL over its limit), its batch, or a clock
    - a `break` that depends on its rank, or on what only that rank knows
    - an exception in a step that it swallows, so that it continues with its next step
    - a request that a trainer stops (`control.should_training_stop`, `trainer.should_stop`), by what it finds

    ## Why is this bad
    Each process has other data and so another loss. A backward pass of a wrapped model is a collective.

    ## What happens with N processes
    The process with the NaN skips its backward pass. The others wait in theirs, or it is one step ahead of them from
    then on.

    ## Known problems
    Tests of gradients count as equal on all ranks, because DDP has reduced them. A model that is wrapped where nobody
    can see it is not known. Confidence is low if files are only read.

    ## Use instead
    Reduce the value, or the decision, over all processes. Let all skip or stop together.
    """

    code, name, severity, row = "AR209", "rank-local-loop-exit", "error", "collectives"
    instead_of = ("AR703",)
    cluster = "One process skips its backward pass, and the others wait for it there."
    advice = "Reduce the value, or the decision, over all processes; then all leave together, or none."
    bad = (
        """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def train(model, loader, optimizer):
    model = DDP(model)
    for x in loader:
        loss = model(x)
        if torch.isnan(loss):
            continue
        loss.backward()  # <-- found
        optimizer.step()
""",
    )
    good = (
        """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def train(model, loader, optimizer):
    model = DDP(model)
    for x in loader:
        loss = model(x)
        bad = torch.isnan(loss).float()
        dist.all_reduce(bad)
        if bad > 0:
            continue
        loss.backward()
        optimizer.step()
""",
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for root, parted in program.divergences("process", "loop"):
            called, leaves, op = short(parted.call.name), parted.leaves, parted.call.entry.op
            if leaves or op == "stop":
                who = "a rank" if parted.cause == "loop" else "a process"
                how = f"leaves by {leaves}, before {called}" if leaves else f"stops alone, by {called}"
                cluster = None if op.endswith("backward") else _WAITS
                low = parted.cause == "process" and reads_alike(parted)
                message = f"{who} that finds {condition(parted)} {how}"
                yield self.divergence(program, root, parted, message, low=low, cluster=cluster)
