"""AR106: every rank downloads or unpacks into the same folder."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.program import Program, short
from allranks.check.queries.effects import named, ungated, writes
from allranks.check.rule import ProgramRule
from allranks.check.traces.walk import Reach
from allranks.findings import Finding


class UngatedDownload(ProgramRule):
    """
    ## What it does
    Finds a download, or the unpacking of an archive, that every process does into the same folder. Known are data sets
    with `download=True`, `urlretrieve`, `wget`, `gdown`, `extractall`, `nltk.download`, and shell commands (`wget`,
    `curl -o`, `tar x`, `unzip`, `git clone`, `aws s3 cp`, `pip install`).

    ## Why is this bad
    These write directly to the final name. A process that finds the file assumes that it is complete.

    ## What happens with N processes
    N copies are fetched over one another. Some processes read a half-written file, or unpack an archive that is still
    growing. They fail now and then, with a checksum or an end-of-file error.

    ## Known problems
    Calls that lock by themselves (`snapshot_download`, `hf_hub_download`, `load_dataset`, `hf download`) are not
    reported.

    ## Use instead
    Let one process of each node download while the others wait: `with accelerator.main_process_first():`, Lightning's
    `prepare_data`, or a guard with a barrier after it.
    """

    code, name, severity, row = "AR106", "ungated-download", "warning", "gating"
    cluster = "N processes write the same files at once, and a process that finds them too early reads half of them."
    advice = "Download on one process of each node, then a barrier; all ranks read afterwards."
    bad = (
        """\
import torch.distributed as dist
from torchvision.datasets import MNIST

dist.init_process_group("nccl")
data = MNIST("data", download=True)  # <-- found
""",
    )
    good = (
        """\
import torch.distributed as dist
from torchvision.datasets import MNIST

dist.init_process_group("nccl")
if dist.get_rank() == 0:
    MNIST("data", download=True)
dist.barrier()
data = MNIST("data", download=False)
""",
    )

    def check(self, program: Program) -> Iterator[Finding]:
        for root, reach, what in writes(program.analysis):
            if what == "download":
                yield self.effect(program, root, reach, f"every rank downloads {named(reach)}")
        for root, reach in ungated(program.analysis, "download"):
            yield self.effect(program, root, reach, f"every rank downloads by {_how(reach)}")


def _how(reach: Reach) -> str:
    """Return how something is downloaded: by a function, or by a command of a shell."""
    is_shell = reach.call.name.startswith(("subprocess.", "os."))
    return reach.call.target if is_shell else short(reach.call.name)
