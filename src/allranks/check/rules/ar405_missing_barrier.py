"""AR405: rank 0 writes what all ranks read, and nobody waits."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Event, Program
from allranks.check.rule import Example, ProgramRule
from allranks.findings import Finding, Note

_WRITES = ("checkpoint", "file", "mkdir", "folder", "download")
_READS = ("read", "load")


class MissingBarrier(ProgramRule):
    """
    ## What it does
    Finds a file or folder that rank 0 makes and that the other ranks read or fill, in the same function under the same
    name, with no collective between.

    ## Why is this bad
    The others are there first.

    ## What happens with N processes
    A rank that is faster than rank 0 finds no file, last run's file, or half of a file.

    ## Known problems
    Writer and reader in two functions are not seen.

    ## Use instead
    A barrier between, on all ranks (`dist.barrier()`, `accelerator.wait_for_everyone()`).

    ## Fix safety
    There is no automatic fix: the barrier must stand where all ranks come by.
    """

    code, name, severity, row = "AR405", "missing-barrier", "error", "checkpoint save"
    cluster = "A rank that is faster than rank 0 finds no file, an old one, or half of one."
    advice = "Put a barrier that all ranks reach between the write and the read."
    bad = (
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist

def main(model, path):
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path)
    state = torch.load(path)
"""
            },
            at=(8,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import os
import torch
import torch.distributed as dist

def main(model, path):
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        os.makedirs("runs")
        torch.save(model.state_dict(), path)
    dist.barrier()
    state = torch.load(path)
    if dist.get_rank() == 0:
        torch.save(state, "last.pt")
        state = torch.load("last.pt")
"""
            }
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        made: dict[tuple[str, str, str], list[Event]] = {}
        for event in program.effects(*_WRITES):
            if event.active and event.roles == {"first"} and event.target and not event.per_process:
                made.setdefault((event.place.path, event.symbol, event.target), []).append(event)
        for event in program.effects(*_READS):
            for writer in made.get((event.place.path, event.symbol, event.target), ()):
                later = writer.place < event.place and writer.met == event.met
                if later and event.everyone and not (event.ordered or writer.ordered):
                    note = Note("rank 0 makes it here", writer.place)
                    yield self.found(
                        event, f"every rank reads {event.target} while rank 0 may still write it", notes=(note,)
                    )
                    break
