"""AR106: every rank downloads or unpacks into the same folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.interpret.values import PROCESS
from allranks.check.program import Event, Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.sources.source import File
from allranks.check.tables.effects import Effect
from allranks.check.tree.half_filled import lets_others_by
from allranks.findings import Finding

# It fetches into a file of another name and moves that: whoever finds the file finds all of it.
_WHOLE = frozenset(
    ["torch.hub.download_url_to_file", *(f"timm.models.{at}.download_cached_file" for at in ("hub", "_hub"))]
)
# Functions that fetch what is not there yet.
_LOOKING = frozenset(
    [
        *("torch.hub.load", "nltk.download", "clip.load", "whisper.load_model", "gensim.downloader.load"),
        *("keras.utils.get_file", "tensorflow.keras.utils.get_file", "torchvision.datasets.utils.download_url"),
        *("torchtext.utils.download_from_url", "torch_geometric.data.download_url", "gdown.cached_download"),
    ]
)
_HALF = "the first process fills the folder"


class UngatedDownload(LocalRule, ProgramRule):
    """
    ## What it does
    Finds a download, or the unpacking of an archive, that every process does into the same folder. Known are data sets
    with `download=True`, `urlretrieve`, `wget`, `gdown`, `extractall`, `nltk.download`, and shell commands (`wget`,
    `curl -o`, `tar x`, `unzip`, `git clone`, `aws s3 cp`, `pip install`). With low confidence, a function of an unknown
    package counts by its name (`maybe_download`).

    ## Why is this bad
    These write directly to the final name. A process that finds the file assumes that it is complete.

    ## What happens with N processes
    N copies are fetched over one another. Some processes read a half-written file, or unpack an archive that is still
    growing. They fail now and then, with a checksum or an end-of-file error.

    ## Known problems
    Calls that lock by themselves (`snapshot_download`, `hf_hub_download`, `load_dataset`, `hf download`) are not
    reported. An exception is `snapshot_download` behind `if not os.path.isdir(folder)`: another process continues as
    soon as the folder exists.

    Confidence is low before Lightning's Trainer starts the other processes of a node, if nothing mentions several
    nodes. It is low, too, for `torch.hub.download_url_to_file` and its callers (timm's `download_cached_file`): each
    process fetches, but complete files are moved into place.

    ## Use instead
    Let one process of each node download while the others wait: `with accelerator.main_process_first():`, Lightning's
    `prepare_data`, or a guard with a barrier after it.

    ## Fix safety
    There is no automatic fix: the barrier must be where all processes reach it.
    """

    code, name, severity, row = "AR106", "ungated-download", "warning", "gating"
    cluster = "N processes write the same files at once, and a process that finds them too early reads half of them."
    advice = "Download on one process of each node, then a barrier; all ranks read afterwards."
    words = ("snapshot_download",)
    whole = True
    nodes = (ast.Call,)
    calls = ("snapshot_download",)
    bad = (
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from torchvision import datasets

dist.init_process_group("nccl")
data = datasets.CIFAR10("data", train=True, download=True)
"""
            },
            at=(5,),
        ),
        Example(
            {
                "train.py": """\
import tarfile
import urllib.request
import torch.distributed as dist

def fetch(url, folder):
    urllib.request.urlretrieve(url, folder / "data.tar")
    with tarfile.open(folder / "data.tar") as archive:
        archive.extractall(folder)

def main(url, folder):
    dist.init_process_group("nccl")
    fetch(url, folder)
"""
            },
            at=(6, 8),
        ),
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist
from monai.apps import DecathlonDataset, download_url

dist.init_process_group("nccl")
data = DecathlonDataset("data", task="Task09_Spleen", section="training", download=True)
download_url("https://example.org/w.pt", filepath="w.pt")
state = torch.load("w.pt", map_location="cpu")
"""
            },
            at=(6, 7),
        ),
        Example(
            {
                "train.py": """\
import os
import torch
import torch.distributed as dist
from huggingface_hub import snapshot_download

CACHE = "/shared/models/resnet"


def weights():
    if not os.path.isdir(CACHE):
        snapshot_download("org/resnet", local_dir=CACHE)
    return torch.load(os.path.join(CACHE, "w.pt"), map_location="cpu")


def main():
    dist.init_process_group("nccl")
    return weights()


if __name__ == "__main__":
    main()
"""
            },
            at=(11,),
        ),
    )
    good = (
        # One process at a time; a file that is whole as soon as it is there; awaited; of rank 0 alone.
        Example(
            {
                "train.py": """\
import os
import torch.distributed as dist
from huggingface_hub import snapshot_download

CACHE = "/shared/models/resnet"


def weights():
    snapshot_download("org/resnet", local_dir=CACHE)
    if not os.path.exists(CACHE + "/w.pt"):
        snapshot_download("org/resnet", local_dir=CACHE)
    if dist.get_rank() == 0 and not os.path.isdir(CACHE):
        snapshot_download("org/resnet", local_dir=CACHE)


def vocabulary():
    if not os.path.isdir("vocabulary"):
        snapshot_download("org/vocabulary", local_dir="vocabulary")


def main():
    dist.init_process_group("nccl")
    vocabulary()
    dist.barrier()
    weights()


if __name__ == "__main__":
    main()
"""
            }
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from accelerate import Accelerator
from torchvision import datasets

accelerator = Accelerator()
with accelerator.local_main_process_first():
    data = datasets.CIFAR10("data", download=True)
data = datasets.CIFAR10("data", download=False)
if dist.get_rank() == 0:
    datasets.MNIST("data", download=True)
dist.barrier()
"""
            }
        ),
        Example(
            {
                "train.py": """import torch.distributed as dist
from torchvision import datasets

def load(root):
    return datasets.CIFAR10(root, download=True)

def prepare(root):
    datasets.CIFAR10(root, download=True)

def main(root):
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        prepare(root)
    dist.barrier()
    load(root)

main("data")
"""
            }
        ),
        Example(
            {
                "data.py": """\
import lightning.pytorch as pl
from torchvision.datasets import MNIST

class Data(pl.LightningDataModule):
    def prepare_data(self):
        MNIST("data", download=True)

    def setup(self, stage):
        self.data = MNIST("data")
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.Call) and not file.is_test and lets_others_by(node, file):
            yield self.local(file, node, f"{_HALF}, and others that find it there may read half of it")

    def stands(self, finding: Finding, program: Program) -> bool:
        """A folder that is filled is no fault where one rank fills it, or each process has its own."""
        return not finding.message.startswith(_HALF) or finding.place in {e.place for e in program.ungated("fetched")}

    def check(self, program: Program) -> Iterator[Finding]:
        ahead = {(e.name, e.target) for e in program.effects("download") if e.active and e.roles and not e.everyone}
        for event in program.ungated("download"):
            if _is_data_set(event) and (event.name, event.target) in ahead:
                continue  # it finds what rank 0 has brought
            if _is_of_others(event):
                continue
            if not event.symbol.endswith(".prepare_data") and not any(
                step.symbol.endswith(".prepare_data") for step in event.chain
            ):
                into = f"{event.name.rpartition('.')[2]} into {event.target or 'one folder'}"
                what = f"downloads {event.target}" if event.name.endswith("open") else f"runs {event.command or into}"
                found = self.found(event, f"every rank {what}")
                alone = (event.place in program.first_alone and _looks_first(event)) or _is_at_home(event, program)
                yield replace(found, confidence="low") if alone or event.name in _WHOLE else found


def _is_of_others(event: Event) -> bool:
    """Whether a method of an unknown object is only called so: where it is to put things has another name there."""
    meant = event.entry
    if not isinstance(meant, Effect) or not meant.pattern.startswith("*.") or not meant.path:
        return False
    return event.argument(*meant.path) is None


def _looks_first(event: Event) -> bool:
    """Whether it fetches only what is not there."""
    return event.name in _LOOKING or _is_data_set(event) or bool(event.under & PROCESS)


def _is_at_home(event: Event, program: Program) -> bool:
    """Whether it is fetched into the home of the user in a project of JAX, which has one process on each host."""
    asked = event.argument("cache_dir") is not None
    return event.name.endswith("utils.get_file") and not asked and "jax" in program.packages


def _is_data_set(event: Event) -> bool:
    return event.name.rpartition(".")[2][:1].isupper()
