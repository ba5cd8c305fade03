"""AR106: every process downloads or unpacks the same thing into the same folder."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import Example, ProgramRule
from allranks.findings import Finding


class UngatedDownload(ProgramRule):
    """
    ## What it does
    Finds downloads and unpackings that every process does, into a folder that they share.

    ## Why is this bad
    The processes write the same files at once, and read what another is still writing.

    ## What happens with N processes
    Some rank opens half an archive: a checksum or a zip error on one rank, while the others wait for it. The host that
    serves the file gets N requests at once.

    ## Known problems
    Functions that lock (`hf_hub_download`, `load_dataset`) are left alone; a project's own lock is seen where it is a
    context manager.

    ## Use instead
    Download on rank 0 (local rank 0, where the folder is on the node), then a barrier; or
    `with accelerator.main_process_first():`.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR106", "ungated-download", "warning", "data"
    cluster = "All processes write the same files at once; some rank reads half of one."
    advice = "Let one process of each file system download, and the others wait at a barrier."
    bad = (
        Example(
            {
                "train.py": """\
import urllib.request
import torch.distributed as dist

dist.init_process_group("nccl")
urllib.request.urlretrieve("https://example.org/a.zip", "a.zip")
"""
            },
            at=(5,),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from torchvision.datasets import CIFAR10

dist.init_process_group("nccl")
data = CIFAR10("data", download=True)
test = CIFAR10("data", train=False)
"""
            },
            at=(5,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import urllib.request
import torch.distributed as dist

dist.init_process_group("nccl")
if dist.get_rank() == 0:
    urllib.request.urlretrieve("https://example.org/a.zip", "a.zip")
dist.barrier()
"""
            }
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for event in program.ungated("download"):
            yield self.found(event, f"every process downloads with {event.name.rpartition('.')[2]}")
