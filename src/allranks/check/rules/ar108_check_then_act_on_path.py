"""AR108: every rank makes the same directory, and only one can."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from allranks.check.interpret.values import PROCESS
from allranks.check.program import Event, Program
from allranks.check.rule import Example, ProgramRule
from allranks.check.survey.folders import is_there
from allranks.findings import Finding

_NO_TEST = "One process makes the directory, and every other one that calls this raises FileExistsError, in each run."


class CheckThenActOnPath(ProgramRule):
    """
    ## What it does
    Finds directories that every rank, or the first of each node, makes without `exist_ok=True`, with or without a test
    `if not os.path.exists(...)`.

    ## Why is this bad
    Between the test and the call another process makes the directory. Without a test, only the first process succeeds.

    ## What happens with N processes
    One process succeeds, the others may raise `FileExistsError`: rarely with two processes, nearly always with a
    thousand, and always without a test.

    ## Known problems
    A directory that a rank made before a barrier exists when the others test for it. That is recognised if both are on
    one way from the entry, and the path is written alike.

    Confidence is low:

    - before Lightning's Trainer starts the other processes of the only node
    - at the import of a file, if `mp.spawn` starts the processes: the first process has imported it before
    - for a program of JAX behind a test: it runs as one process per host, mostly with separate disks (none of 3 such
      findings was right)

    ## Use instead
    `os.makedirs(path, exist_ok=True)`, `path.mkdir(parents=True, exist_ok=True)`.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR108", "check-then-act-on-path", "warning", "gating"
    cluster = "One process makes the directory; another that tested at the same moment raises FileExistsError."
    advice = "Pass exist_ok=True, or make the directory on rank 0 and let the others wait at a barrier."
    bad = (
        Example(
            {
                "train.py": """\
import os
import torch.distributed as dist

dist.init_process_group("nccl")
if not os.path.exists("out"):
    os.makedirs("out")
"""
            },
            at=(6,),
        ),
        Example(
            {
                "train.py": """\
from pathlib import Path
import jax

jax.distributed.initialize()
Path("out").mkdir(parents=True)
"""
            },
            at=(5,),
        ),
        Example(
            {
                "train.py": """\
import os
import torch.distributed as dist

dist.init_process_group("nccl")
if int(os.environ["LOCAL_RANK"]) == 0 and not os.path.isdir("runs"):
    os.makedirs("runs")
    os.mkdir("/tmp/cache")
"""
            },
            at=(6,),
        ),
        Example(
            {
                "writer.py": """\
import os
from lightning.pytorch.callbacks import BasePredictionWriter

class Writer(BasePredictionWriter):
    def write_on_epoch_end(self, trainer, pl_module, predictions, batch_indices):
        if not os.path.exists(self.output_dir):
            os.mkdir(self.output_dir)
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
from pathlib import Path
import torch.distributed as dist

dist.init_process_group("nccl")
os.makedirs("out", exist_ok=True)
Path("out").mkdir(exist_ok=True)
os.makedirs("data", 0o777, True)
if dist.get_rank() == 0 and not os.path.exists("logs"):
    os.makedirs("logs")
"""
            }
        ),
        Example({"train.py": "import os\n\nif not os.path.exists('out'):\n    os.makedirs('out')\n"}),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for event in program.ungated("mkdir"):
            if is_there(event, program.folders):
                continue
            what = f"every rank makes {event.target or 'the directory'}, and only one can"
            found = self.found(event, what, cluster=self._meets(event))
            on_hosts = event.under & PROCESS and program.facts.is_of_jax(event.start.place.path)
            yield replace(found, confidence="low") if on_hosts or program.finds_done(event) else found
        for event in program.effects("mkdir"):
            apart = event.per_process or event.ordered or event.of_the_node
            if event.active and event.first_of_each_node and not apart and not is_there(event, program.folders):
                what = f"makes {event.target or 'the directory'}"
                told = f"the first process of each node {what}, and on a disk of all only one can"
                found = self.found(event, told, cluster=self._meets(event))
                yield replace(found, confidence="low") if program.one_node else found

    def _meets(self, event: Event) -> str:
        """Return what happens on the cluster: whether this process has looked before decides how many fail."""
        return self.cluster if event.under & PROCESS else _NO_TEST
