"""AR104: every rank generates samples and reports them."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import Example, ProgramRule
from allranks.findings import Finding, Note


class UngatedSampleGeneration(ProgramRule):
    """
    ## What it does
    Finds `generate(...)` on every rank in a function that prints the result, or writes it to one file, on every rank.

    ## Why is this bad
    All ranks make the same samples, or each its own, and only one set is used.

    ## What happens with N processes
    N times the work and N times the output, mixed line by line. The last process overwrites the files of the others.

    ## Known problems
    An evaluation in which each rank generates for its own part is intended to run everywhere. Therefore the rule is off
    until it is selected.

    ## Use instead
    If the model is unsharded, generate on rank 0. If it is sharded (FSDP, tensor parallel), generate on all ranks and
    report on rank 0: a guard around the generation would hang the job.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR104", "ungated-sample-generation", "warning", "gating"
    default = False
    cluster = "N ranks generate and report the same samples; their output is mixed."
    advice = "Report on rank 0; generate there too, unless the model is sharded."
    bad = (
        Example(
            {
                "train.py": """\
import torch.distributed as dist

def sample(model, prompt):
    dist.init_process_group("nccl")
    text = model.generate(prompt)
    print(text)
"""
            },
            at=(5,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import torch.distributed as dist

def sample(model, prompt):
    dist.init_process_group("nccl")
    text = model.generate(prompt)
    if dist.get_rank() == 0:
        print(text)
"""
            }
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        reports = [
            e for e in program.effects("print", "file", "append") if e.active and e.everyone and not e.per_process
        ]
        for event in program.effects("sample"):
            if event.active and event.everyone:
                after = [r for r in reports if r.symbol == event.symbol and r.place > event.place]
                if after:
                    note = Note(f"every rank reports it here: {after[0].name}", after[0].place)
                    yield self.found(event, "every rank generates samples and reports them", notes=(note,))
