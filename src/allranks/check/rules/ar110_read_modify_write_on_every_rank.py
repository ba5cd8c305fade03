"""AR110: every rank reads a file, changes it, and writes it back."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.interpret.values import PROCESS
from allranks.check.program import Event, Program
from allranks.check.rule import Example, ProgramRule
from allranks.findings import Finding, Note


class ReadModifyWriteOnEveryRank(ProgramRule):
    """
    ## What it does
    Finds a file that every process reads and then writes in one function, under the same name: counters, indexes,
    lists of results.

    ## Why is this bad
    Another process writes between the read and the write.

    ## What happens with N processes
    Updates of N-1 processes are lost, or are made N times. Some processes read the file while it is empty.

    ## Known problems
    Reading and writing in two functions are not connected. The write is also AR102, which runs by default. Therefore
    this rule is off until it is selected.

    ## Use instead
    Gather what is to be added, and let rank 0 read, change and write. Or use one file per rank.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR110", "read-modify-write-on-every-rank", "error", "gating"
    default = False
    cluster = "Updates are lost or made N times, and a process that reads between finds an empty file."
    advice = "Gather what is to be added, and let only rank 0 read, change and write the file."
    bad = (
        Example(
            {
                "train.py": """\
import json
import torch.distributed as dist

def record(score, path):
    dist.init_process_group("nccl")
    with open(path) as f:
        scores = json.load(f)
    scores.append(score)
    with open(path, "w") as f:
        json.dump(scores, f)
"""
            },
            at=(9,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import json
import torch.distributed as dist

def record(score, path):
    dist.init_process_group("nccl")
    scores = json.load(open(path))
    if dist.get_rank() == 0:
        with open(path, "w") as f:
            json.dump(scores, f)
    mine = f"scores-{dist.get_rank()}.json"
    text = open(mine).read()
    open(mine, "w").write(text + str(score))
"""
            }
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        read: dict[tuple[str, str, str], Event] = {}
        for event in program.effects("read", "load"):
            if event.target:
                read.setdefault((event.place.path, event.symbol, event.target), event)
        for event in program.ungated("file", "checkpoint"):
            before = read.get((event.place.path, event.symbol, event.target))
            if before is not None and before.place < event.place and not event.under & PROCESS:
                note = Note("every rank reads it here", before.place)
                yield self.found(
                    event, f"every rank reads {event.target}, changes it and writes it back", notes=(note,)
                )
