"""AR105: one process of each node writes what is meant for one process of the job."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.interpret.values import PROCESS
from allranks.check.program import Event, Program
from allranks.check.rule import Example, ProgramRule
from allranks.check.tables.effects import STARTS, Effect
from allranks.findings import Finding, Note

# Commands that fail for nobody, or whose failure nobody hears of.
_FORGIVES = re.compile(r"^rm\s+-\w*f|^ln\b.*>\s*/dev/null 2>&1\s*$")


class NodeLocalGateOnSharedPath(ProgramRule):
    """
    ## What it does
    Finds a checkpoint, file, tracker or deletion that is guarded by the rank inside the node (`LOCAL_RANK`,
    `is_local_main_process`) or by the number of the node. A path that is node-local by its name is not reported.

    ## Why is this bad
    Rank 0 of each node passes a guard on the local rank. On a shared file system they write one file together.

    ## What happens with N processes
    With one node, nothing. With M nodes, M processes write, rename or delete the same path: torn files, and
    `FileNotFoundError` in the later processes. A guard on the number of the node lets all processes of node 0 through.

    ## Known problems
    A path on a disk of the node looks like any other. Paths that begin with `/tmp`, `/dev/shm` or `/local`, or come
    from `TMPDIR`, are node-local. So are names with `tmp`, `cache`, `scratch` or `local` in them. Declare others with
    `node-local-paths`, and exceptions with `shared-paths`.

    Confidence is low for:

    - a program without any guard on the global rank, which no script or page starts on several nodes
    - a project in which nothing mentions several nodes
    - `rm -rf` and `rmtree(..., ignore_errors=True)`, which never fail
    - a set of files that each node makes for itself if it finds none

    ## Use instead
    Guard with the global rank. Keep the local rank for what each node needs for itself: downloads and caches.

    ## Fix safety
    There is no automatic fix: the code does not say whether the disk is shared.
    """

    code, name, severity, row = "AR105", "node-local-gate-on-shared-path", "warning", "gating"
    of_nodes = True
    cluster = "With M nodes and a shared file system, M processes write or change the same path at once."
    advice = "Guard with the global rank (rank == 0), or write to a disk of the node."
    bad = (
        Example(
            {
                "train.py": """\
import os
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
model = torch.nn.Linear(2, 2)
if int(os.environ["LOCAL_RANK"]) == 0:
    torch.save(model.state_dict(), "checkpoints/last.pt")
"""
            },
            at=(8,),
        ),
        Example(
            {
                "train.py": """\
from accelerate import Accelerator

def main(state, out):
    accelerator = Accelerator()
    if accelerator.is_local_main_process:
        write(state, out)

def write(state, out):
    with open(out / "state.json", "w") as f:
        f.write(state)
"""
            },
            at=(9,),
        ),
        Example(
            {
                "train.py": """\
from accelerate import Accelerator

accelerator = Accelerator()
if accelerator.is_main_process:
    log = open("log.csv", "a")
for step in range(9):
    if accelerator.is_local_main_process:
        print(step, file=log)
"""
            },
            at=(8,),
        ),
        Example(
            {
                "train.py": """\
import os
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
if int(os.environ["GROUP_RANK"]) == 0:
    torch.save({}, "checkpoints/last.pt")
"""
            },
            at=(7,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import os
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
if dist.get_rank() == 0:
    torch.save({}, "checkpoints/last.pt")
if int(os.environ["LOCAL_RANK"]) == 0:
    torch.save({}, "/tmp/last.pt")
    torch.save({}, f"checkpoints/node-{os.environ['GROUP_RANK']}.pt")
"""
            }
        ),
        # TensorBoard calls its folder after the host where it is given none.
        Example(
            {
                "train.py": """\
import os
import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter

dist.init_process_group("nccl")
if int(os.environ["LOCAL_RANK"]) == 0:
    writer = SummaryWriter(comment="_squad")
"""
            }
        ),
        # Where a path leads is followed, into other files too.
        Example(
            {
                "train.py": """import os
import torch.distributed as dist
from saving import save

dist.init_process_group("nccl")
if int(os.environ["LOCAL_RANK"]) == 0:
    save({}, os.path.join(os.environ.get("TMPDIR", "."), "run"))
""",
                "saving.py": """import os
import torch

def save(state, folder):
    torch.save(state, os.path.join(folder, "last.pt"))
""",
            }
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        opened = {event.place: event.may for event in program.effects("file", "append") if event.opened is None}
        told = {path for event in program.events if event.may == {"first"} for path in _paths(event)}
        for event in program.effects("checkpoint", "file", "append", "delete", "publish", "tracker"):
            who = _who(event)
            has = event.opened is not None and opened.get(event.opened, event.may) >= event.may
            if who and event.active and not has and not event.of_the_node:  # one finding a file: where it is opened
                notes = [Note("the guard is here", event.guard)] if event.guard else []
                what = event.target or event.name
                found = self.found(event, f"{who} works on {what}: the guard is not on the global rank", notes=notes)
                sure = not event.from_the_top or not told.isdisjoint(_paths(event))
                meant = (sure and told) or not program.facts.across_nodes.isdisjoint(_paths(event))
                yield found if meant and not _is_harmless(event) else replace(found, confidence="low")


def _is_harmless(event: Event) -> bool:
    """Whether each node makes a set of files for itself where it finds none, or runs a command that fails for nobody:
    who finds the folder there leaves it, and that only one can make it is told by AR108."""
    makes = isinstance(event.entry, Effect) and event.entry.kind == "file" and event.looped
    ignores = event.argument("ignore_errors") if event.name == "shutil.rmtree" else None
    forgives = bool(event.command and _FORGIVES.search(event.target))
    return forgives or (ignores is not None and ignores.constant is True) or (makes and bool(event.under & PROCESS))


def _paths(event: Event) -> tuple[str, str]:
    """Return the file of an event, and that of the program."""
    return event.place.path, event.start.place.path


def _who(event: Event) -> str:
    """Return who works on what all nodes share; empty if it is one process, or all of them, or not known."""
    of_framework = any(symbol.endswith(".prepare_data") for symbol in (event.symbol, *(s.symbol for s in event.chain)))
    logs = isinstance(event.entry, Effect) and event.entry.kind == "tracker" and not event.name.endswith(STARTS)
    if event.per_process or event.ordered or of_framework or logs or _is_called_after_host(event):
        return ""
    if event.first_of_each_node:
        return "the first process of each node"
    # The number of the node: true for rank 0, false on other nodes, and true for some of the rest.
    of_node_0 = event.roles == {"first"} and event.may == {"first", "peer", "other"}
    return "every process of the first node" if of_node_0 else ""


def _is_called_after_host(event: Event) -> bool:
    """Whether it is TensorBoard's writer without a folder, which makes one that bears the name of the host."""
    keys = (0, "log_dir", "logdir", "**")
    return event.name == "torch.utils.tensorboard.SummaryWriter" and event.argument(*keys) is None
