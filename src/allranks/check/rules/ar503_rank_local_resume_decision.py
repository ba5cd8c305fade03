"""AR503: each process decides for itself whether, and from what, to resume."""

from __future__ import annotations

import re
from collections.abc import Iterator

from allranks.check.interpret.values import PROCESS, RANKS
from allranks.check.program import Event, Program
from allranks.check.rule import Example, ProgramRule
from allranks.findings import Finding

# Loads in which all processes meet; and what does so only where a model lies in parts.
_LOADS = re.compile(r"\.(load_checkpoint|restore|load|load_state)$")
_LOADS_APART = ("accelerate.Accelerator.load_state",)

# What reads arrays or bytes of any kind, and names of functions and modules in which they are a checkpoint.
_ARRAYS = ("numpy.load", ".read_bytes")
_RESUMES = re.compile(r"(?i)ckpt|checkpoint|restore|resume|snapshot")


class RankLocalResumeDecision(ProgramRule):
    """
    ## What it does
    Finds a checkpoint that is loaded if this process finds that it exists, or under a name that this process takes from
    a listing.

    ## Why is this bad
    Processes may find different things: the file system of another host is late, a disk is not shared, another process
    is writing.

    ## What happens with N processes
    Some ranks resume and others start from nothing, or from another step. They train together, with mixed weights and
    steps. The learning rate or the end of the run differs by rank.

    ## Known problems
    On an idle shared file system all processes find the same. Therefore the rule is off until it is selected.

    ## Use instead
    Decide on rank 0, broadcast the path (or None), and fail on a rank that cannot read it.

    ## Fix safety
    There is no automatic fix: which collective can be used depends on what is initialised there.
    """

    code, name, severity, row = "AR503", "rank-local-resume-decision", "warning", "checkpoint load"
    default = False
    cluster = "Some ranks resume and others start from nothing, or from another step, and train on together."
    advice = "Let rank 0 decide and broadcast the path or None; raise on a rank that cannot read it."
    bad = (
        Example(
            {
                "train.py": """\
import os
import torch
import torch.distributed as dist

def main(model, path):
    dist.init_process_group("nccl")
    if os.path.exists(path):
        model.load_state_dict(torch.load(path))
"""
            },
            at=(8,),
        ),
        Example(
            {
                "train.py": """\
import glob
import torch
import torch.distributed as dist

def main(model):
    dist.init_process_group("nccl")
    latest = sorted(glob.glob("runs/*.pt"))[-1]
    state = torch.load(latest)
"""
            },
            at=(8,),
        ),
        Example(
            {
                "train.py": """\
import os
from accelerate import Accelerator

class Run:
    def __init__(self, accelerator, folder):
        self.accelerator, self.folder = accelerator, folder

    def resume(self):
        if os.path.isdir(self.folder) and os.listdir(self.folder):
            self.accelerator.load_state(self.folder)

Run(Accelerator(), "runs/1").resume()
"""
            },
            at=(10,),
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
    found = [os.path.exists(path)]
    dist.broadcast_object_list(found, src=0)
    if found[0]:
        model.load_state_dict(torch.load(path))
"""
            }
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        said = set()
        together = [event for event in program.collectives() if _LOADS.search(event.name)]
        together += [event for event in program.calls(*_LOADS_APART) if not event.op]
        arrays = (e for e in program.effects("read") if e.name.endswith(_ARRAYS) and _RESUMES.search(e.symbol))
        for event in (*program.effects("load"), *together, *arrays):
            given = (
                (event.path, *event.arguments, *(v for _, v in event.keywords))
                if not event.is_effect
                else (event.path,)
            )
            own = any(one is not None and one.taint & PROCESS for one in given) and not event.per_process
            if event.active and _all_may(event) and (own or (event.under & PROCESS and not event.under & RANKS)):
                if event.symbol not in said:
                    yield self.found(
                        event,
                        f"each process decides by its own files whether {event.told} runs, or with which file",
                    )
                said.add(event.symbol)


def _all_may(event: Event) -> bool:
    return len(event.may) == 4
