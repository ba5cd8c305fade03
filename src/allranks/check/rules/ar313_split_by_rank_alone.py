"""AR313: a stream is dealt out to processes, and the workers of each process all read its whole part."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.program import Event, Program
from allranks.check.rule import Example, LocalRule
from allranks.check.sources.source import File
from allranks.check.tables.data import LOADERS
from allranks.check.tree.splits import split_at, splits
from allranks.check.tree.syntax import bases_of, class_of
from allranks.findings import Finding

_HOWS = ("stride", "block", "modulo")


class SplitByRankAlone(LocalRule):
    """
    ## What it does
    Finds an `IterableDataset` that takes the part of its process (`files[rank::world]`, `i % world == rank`) and does
    not use the number of its worker. The program gives it to a loader with `num_workers` above zero, or with a number
    that is a setting.

    ## Why is this bad
    Each worker has a copy of the data set and reads all of it.

    ## What happens with N processes
    Every sample is read `num_workers` times in an epoch, in the same order by each worker. Nothing fails: epochs are
    long, and the model overfits.

    ## Known problems
    A setting that is always zero is not recognised. A `worker_init_fn` is not reported.

    ## Use instead
    ```python
    info = get_worker_info()
    worker, workers = (info.id, info.num_workers) if info else (0, 1)
    files[rank * workers + worker :: world * workers]
    ```

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR313", "split-by-rank-alone", "error", "data"
    cluster = "Every worker of a loader reads the whole part of its process: each sample is read num_workers times."
    advice = "Divide by rank and worker: files[rank * workers + worker :: world * workers], from get_worker_info()."
    words = ("IterableDataset",)
    nodes = (ast.Subscript, ast.Compare, ast.Call)
    bad = (
        Example(
            {
                "stream.py": """\
import torch.distributed as dist
from torch.utils.data import IterableDataset


class Lines(IterableDataset):
    def __init__(self, files):
        self.files = files

    def __iter__(self):
        for file in self.files[dist.get_rank() :: dist.get_world_size()]:
            yield from open(file)
""",
                "train.py": """\
import torch.distributed as dist
from stream import Lines
from torch.utils.data import DataLoader

dist.init_process_group("nccl")
lines = Lines(["a", "b"])
loader = DataLoader(lines, batch_size=8, num_workers=4)
""",
            },
            at=(10,),
        ),
    )
    good = (
        Example(
            {
                "stream.py": """\
import torch.distributed as dist
from torch.utils.data import IterableDataset, get_worker_info


class Lines(IterableDataset):
    def __init__(self, files):
        self.files = files[dist.get_rank() :: dist.get_world_size()]

    def __iter__(self):
        info = get_worker_info()
        for file in self.files[info.id :: info.num_workers]:
            yield from open(file)


class Alone(IterableDataset):
    def __init__(self, files):
        self.files = files[dist.get_rank() :: dist.get_world_size()]

    def __iter__(self):
        for file in self.files:
            yield from open(file)
""",
                "train.py": """\
import torch.distributed as dist
from stream import Alone, Lines
from torch.utils.data import DataLoader

dist.init_process_group("nccl")
loader = DataLoader(Lines(["a", "b"]), batch_size=8, num_workers=4)
held_out = DataLoader(Alone(["c", "d"]), batch_size=8, num_workers=0)
few = DataLoader(Alone(["c", "d"]), batch_size=8)
""",
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        split = split_at(node, file)
        owner = class_of(node, file)
        if split is None or split.how not in _HOWS or owner is None:
            return
        if not any(base.endswith("IterableDataset") for base in bases_of(owner, file)):
            return
        first = splits(owner, file)[:1] == (split,)
        if first and "worker" not in ast.unparse(owner).lower():
            yield self.local(file, node, "the data is split among processes, and not among the workers of a loader")

    def stands(self, finding: Finding, program: Program) -> bool:
        """Whether a loader with workers of its own goes through such a data set."""
        return any(_is_read_by(event, finding) for event in program.calls(*LOADERS))


def _is_read_by(loader: Event, finding: Finding) -> bool:
    data, workers = loader.argument(0, "dataset"), loader.argument("num_workers", 5)
    if data is None or workers is None or loader.argument("worker_init_fn", 9) is not None:
        return False
    path, _, kind = data.instance.partition("::")
    return workers.constant not in (0, None) and path == finding.place.path and f".{kind}." in f".{finding.symbol}."
