"""AR605: an NCCL process that has not said which GPU is its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.source import File
from allranks.check.syntax import function_of, given, has_stars, keyword, name_of, own, tail_of
from allranks.findings import Finding, Note

# Something in the file gives the process its GPU.
_BOUND = re.compile(
    r"set_device|device_id\s*=|CUDA_VISIBLE_DEVICES|cuda\.device\(|set_device_index|get_device\(|jax|deepspeed|ray\.|accelerat",
    re.I,
)

_BINDS = re.compile(
    r"set_device|device_id|CUDA_VISIBLE_DEVICES|cuda\.device\(|deepspeed\.initialize|get_device|jax|ray\.|torch_xla|[\"']cpu[\"']|[\"']gloo[\"']|\bnpu\b"
)
_JOINS = ("torch.distributed.init_process_group", "deepspeed.init_distributed")
_MEETS = (
    "barrier",
    "synchronize",
    "all_reduce",
    "broadcast",
    "all_gather",
    "broadcast_object_list",
    "all_gather_object",
)


class DeviceNotBound(LocalRule):
    """
    ## What it does
    Finds `init_process_group("nccl")` in a program that never calls `torch.cuda.set_device` and passes no `device_id`,
    and a barrier or another collective that comes after it (or after `deepspeed.init_distributed`) in the same function
    before the device is set.

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
    words = ("init_process_group", "init_distributed")
    nodes = (ast.Call,)
    calls = _JOINS
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
        Example(
            {
                "launch.py": """\
import torch
import torch.distributed as dist


def work(local_rank, main):
    dist.init_process_group(backend="NCCL")
    dist.barrier()
    torch.cuda.set_device(local_rank)
    main()
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
        name = name_of(node, file)
        if not isinstance(node, ast.Call) or name not in _JOINS:
            return
        if (early := _met_too_early(node, file)) is not None:
            note = Note("the processes are joined here", file.place(node))
            message = f"{tail_of(early)} before a GPU is bound to the process"
            yield self.finding(file.place(early), file.symbol(early), message, notes=[note])
            return
        if name != _JOINS[0] or has_stars(node) or keyword(node, "device_id") is not None:
            return
        whole = "__main__" in file.text or "DistributedDataParallel" in file.text
        if whole and _is_nccl(given(node, 0, "backend")) and not _BOUND.search(file.text):
            yield self.local(file, node, "an NCCL process group, and no GPU is bound to the process")


def _is_nccl(backend: ast.expr | None) -> bool:
    return isinstance(backend, ast.Constant) and str(backend.value).lower() == "nccl"


def _met_too_early(join: ast.Call, file: File) -> ast.Call | None:
    """Return the first collective after ``join`` in its function, if the file binds the device after it alone."""
    function = function_of(join, file)
    with_nccl = name_of(join, file) != _JOINS[0] or _is_nccl(given(join, 0, "backend"))
    if function is None or not with_nccl or has_stars(join) or keyword(join, "device_id") is not None:
        return None
    after = [at for at in own(function) if isinstance(at, ast.Call) and at.lineno > join.lineno]
    meets = [at for at in after if tail_of(at) in _MEETS and not name_of(at, file).startswith(("torch.cuda", "jax"))]
    if not meets:
        return None
    first = min(meets, key=lambda at: at.lineno)
    sooner = file.lines[: first.lineno]
    return None if any(_BINDS.search(line) for line in sooner) else first
