"""AR105: one process of each node writes what is meant for one process of the job."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.queries.effects import by_nodes, named
from allranks.check.rule import ProgramRule
from allranks.findings import Finding

_KINDS = ("checkpoint", "file", "append", "delete", "tracker", "moved")


class NodeLocalGateOnSharedPath(ProgramRule):
    """
    ## What it does
    Finds a checkpoint, file, tracker or deletion that is guarded by the rank inside the node (`LOCAL_RANK`,
    `is_local_main_process`). A path that is node-local by its name is not reported.

    ## Why is this bad
    Rank 0 of each node passes a guard on the local rank. On a shared file system they write one file together.

    ## What happens with N processes
    With one node, nothing. With M nodes, M processes write, rename or delete the same path: torn files, and
    `FileNotFoundError` in the later processes.

    ## Known problems
    A path on a disk of the node looks like any other. Paths that begin with `/tmp`, `/dev/shm` or `/local`, or come
    from `TMPDIR`, are node-local. Declare others with `node-local-paths`, and exceptions with `shared-paths`.

    Confidence is low in a project in which nothing mentions several nodes.

    ## Use instead
    Guard with the global rank. Keep the local rank for what each node needs for itself: downloads and caches.
    """

    code, name, severity, row = "AR105", "node-local-gate-on-shared-path", "warning", "gating"
    of_nodes = True
    cluster = "With M nodes and a shared file system, M processes write or change the same path at once."
    advice = "Guard with the global rank (rank == 0), or write to a disk of the node."
    bad = (
        """\
# file: train.py
import os
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
model = torch.nn.Linear(2, 2)
if int(os.environ["LOCAL_RANK"]) == 0:
    torch.save(model.state_dict(), "checkpoints/last.pt")  # <-- found
# file: train.sh
torchrun --nnodes 2 --nproc-per-node 8 train.py
""",
    )
    good = (
        """\
# file: train.py
import os
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
if dist.get_rank() == 0:
    torch.save({}, "checkpoints/last.pt")
if int(os.environ["LOCAL_RANK"]) == 0:
    torch.save({}, "/tmp/last.pt")
# file: train.sh
torchrun --nnodes 2 --nproc-per-node 8 train.py
""",
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for root, reach in by_nodes(program.analysis, *_KINDS):
            message = f"the first process of each node works on {named(reach)}: the guard is not on the global rank"
            yield self.effect(program, root, reach, message, low=not program.facts.several_nodes)
