"""AR605: an NCCL process that has not said which GPU is its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.source import File
from allranks.check.syntax import given, has_stars, keyword, name_of
from allranks.findings import Finding

# Something in the file gives the process its GPU.
_BOUND = re.compile(
    r"set_device|device_id\s*=|CUDA_VISIBLE_DEVICES|cuda\.device\(|set_device_index|get_device\(|jax|deepspeed|ray\.|accelerat",
    re.I,
)


class DeviceNotBound(LocalRule):
    """
    ## What it does
    Finds `init_process_group("nccl")` in a program that never calls `torch.cuda.set_device` and passes no `device_id`.

    ## Why is this bad
    The current device of every process is GPU 0 until it is set. `barrier`, object collectives and `.cuda()` use the
    current device.

    ## What happens with N processes
    All processes of a host put a context and their small collectives on GPU 0: memory there, NCCL's "duplicate GPU
    detected", or a hang in the first barrier.

    ## Known problems
    A device that another file sets is not seen; only files that are programs (with `__main__`) or wrap the model are
    looked at.

    ## Use instead
    `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before `init_process_group`, or `device_id=` in it.
    """

    code, name, severity, row = "AR605", "device-not-bound", "warning", "initialisation"
    cluster = "All processes of a host use GPU 0 for barriers and objects: memory there, or a hang."
    advice = "Call torch.cuda.set_device(local_rank) before, or pass device_id."
    words = ("init_process_group",)
    nodes = (ast.Call,)
    bad = (
        Example(
            {
                "train.py": """\
import os
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(model):
    dist.init_process_group(backend="nccl")
    return DDP(model, device_ids=[int(os.environ["LOCAL_RANK"])])
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
import torch
import torch.distributed as dist

if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
"""
            }
        ),
        Example({"train.py": "import torch.distributed as dist\n\ndist.init_process_group('gloo')\n# __main__\n"}),
        Example(
            {"setup.py": "import torch.distributed as dist\n\n\ndef setup():\n    dist.init_process_group('nccl')\n"}
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or name_of(node, file) != "torch.distributed.init_process_group":
            return
        if has_stars(node) or not _is_nccl(given(node, 0, "backend")) or keyword(node, "device_id") is not None:
            return
        whole = "__main__" in file.text or "DistributedDataParallel" in file.text
        if whole and not _BOUND.search(file.text):
            yield self.local(file, node, "an NCCL process group, and no GPU is bound to the process")


def _is_nccl(backend: ast.expr | None) -> bool:
    return isinstance(backend, ast.Constant) and backend.value == "nccl"
