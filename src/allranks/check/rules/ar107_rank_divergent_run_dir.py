"""AR107: each rank names the folder of the run for itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from allranks.check.program import Event, Program
from allranks.check.rule import Example, ProgramRule
from allranks.check.tables.effects import Effect
from allranks.check.values import CLOCK, IDENTITY, PROCESS, RANKS
from allranks.findings import Finding, Note

_RUN = re.compile(r"(?i)run|exp|job|log|ckpt|checkpoint")


class RankDivergentRunDir(ProgramRule):
    """
    ## What it does
    Finds a directory that every process makes, and a checkpoint that all save together, under a name from the clock, a
    random number or a listing, taken by each process for itself.

    ## Why is this bad
    Processes start a little apart. A name with seconds in it, or the number of runs that are there already, is not the
    same for all of them.

    ## What happens with N processes
    One run leaves several folders, each with some of its files; a checkpoint whose shards lie in two folders cannot be
    loaded.

    ## Known problems
    A name with the date alone differs only at midnight, and is reported as well.

    ## Use instead
    Let rank 0 choose the name and broadcast it, or take it from the launcher (an environment variable, an option).

    ## Fix safety
    There is no automatic fix: which collective can be used depends on what is initialised there.
    """

    code, name, severity, row = "AR107", "rank-divergent-run-dir", "warning", "checkpoint save"
    default = False
    cluster = "Ranks that start a second apart choose different folders, and the files of one run are spread over them."
    advice = "Choose the name on rank 0 and broadcast it, or let the launcher pass it to all."
    bad = (
        Example(
            {
                "train.py": """\
import os
from datetime import datetime
import torch.distributed as dist

def main():
    dist.init_process_group("nccl")
    stamp = datetime.now().strftime("%m%d-%H%M%S")
    run = os.path.join("runs", stamp)
    os.makedirs(run, exist_ok=True)
"""
            },
            at=(9,),
        ),
        Example(
            {
                "train.py": """\
from glob import glob
from pathlib import Path
import torch.distributed as dist

dist.init_process_group("nccl")
run = Path(f"runs/{len(glob('runs/*')):03d}")
run.mkdir(parents=True, exist_ok=True)
"""
            },
            at=(7,),
        ),
        Example(
            {
                "train.py": """\
import os
import uuid
import torch.distributed as dist

dist.init_process_group("nccl")
run_id = str(uuid.uuid4())
os.makedirs("logs/%s" % run_id, exist_ok=True)
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
import time
import torch.distributed as dist

dist.init_process_group("nccl")
names = [time.strftime("%m%d-%H%M%S")]
dist.broadcast_object_list(names, src=0)
os.makedirs(names[0], exist_ok=True)
if dist.get_rank() == 0:
    os.makedirs(time.strftime("%m%d-%H%M%S"), exist_ok=True)
os.makedirs(f"{time.time()}-{dist.get_rank()}", exist_ok=True)
"""
            }
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        sources = tuple(program.sources("clock", "random", "listing"))
        for event in program.effects("mkdir", "folder", "checkpoint"):
            if (
                event.active
                and event.everyone
                and event.path is not None
                and "temporary" not in event.path.flags
                and (_divergent(event.path.taint) or (_makes(event) and _found(event, sources)))
            ):
                yield self._named(event, sources, "makes" if _makes(event) else "writes to")
        for event in program.effects("mkdir", "folder"):
            if event.active and event.everyone and event.path is not None and _drawn(event, program):
                yield self._named(event, tuple(program.sources("identity")), "makes")
        for event in program.collectives():
            if event.active and "checkpoint" in event.op and any(_divergent(v.taint) for v in event.arguments):
                yield self._named(event, sources, "saves to")

    def _named(self, event: Event, sources: tuple[Event, ...], what: str) -> Finding:
        before = [s for s in sources if s.symbol == event.symbol and s.place <= event.place]
        notes = [Note(f"{before[-1].name} differs from process to process", before[-1].place)] if before else []
        return self.found(
            event, f"each rank {what} {event.target or 'a path'}, under a name that it chooses for itself", notes=notes
        )


def _divergent(taint: int, own: int = CLOCK) -> bool:
    return bool(taint & own) and not taint & (RANKS | IDENTITY)


def _found(event: Event, sources: tuple[Event, ...]) -> bool:
    """Whether a path is made of what its function lists or draws; what others found, as a step, is mostly alike."""
    path = event.path
    here = any(s.symbol == event.symbol and s.place < event.place for s in sources)
    return here and path is not None and _divergent(path.taint, PROCESS)


def _drawn(event: Event, program: Program) -> bool:
    """Whether a folder, by its name that of a run, is called after what each process draws for itself."""
    taint = event.path.taint if event.path is not None else 0
    if not taint & IDENTITY or taint & RANKS or not _RUN.search(event.target):
        return False
    drawn = (s for s in program.sources("identity") if "uuid" in s.name and s.symbol == event.symbol)
    return any(source.place < event.place for source in drawn)


def _makes(event: Event) -> bool:
    return isinstance(event.entry, Effect) and event.entry.kind in ("mkdir", "folder")
