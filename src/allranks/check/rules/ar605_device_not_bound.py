"""AR605: an NCCL process that has not said which GPU is its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import origins, reached
from allranks.check.tree.syntax import distributed, function_of, given, has_stars, keyword, name_of, own, tail_of
from allranks.findings import Finding, Note

_JOIN = "torch.distributed.init_process_group"
_JOINS = (_JOIN, "deepspeed.init_distributed")
_MEETS = ("barrier", "synchronize", "all_reduce", "broadcast", "all_gather", "broadcast_object_list")
# Words of a project in which something gives each process its GPU, or has no GPU.
_BINDING = (
    *("set_device", "device_id=", "device_id =", "VISIBLE_DEVICES", "set_gpu_device", "cuda.device(", "deepspeed"),
    *("accelerate", "lightning", "import ray", "from ray", "colossalai", "composer", "mmengine", "mmcv"),
    *("import jax", "get_device("),
)
# Each tensor goes to a GPU by its number: mostly nothing is left that takes the current one.
_BY_NUMBER = (
    *("device_ids=[rank", "device_ids=[local", "device_ids=[gpu", "device_ids=[self", 'device("cuda", '),
    *("device('cuda', ", "f'cuda:{", 'f"cuda:{'),
)
_STARTS = ("spawn(", "start_processes", "Process(", "--nproc_per_node", "--nproc-per-node")
_UNBOUND = "an NCCL process group is made, and no GPU is bound to the process"
_IN_JOB = "the rank in the job is used as the number of a GPU of this host"
_SECOND_HOST = "It works on one host; on the second there is no GPU of that number: invalid device ordinal."
_LOCAL_RANK = "Take the rank on the host: int(os.environ['LOCAL_RANK']), or the rank modulo torch.cuda.device_count()."


class DeviceNotBound(LocalRule):
    """
    ## What it does
    Finds processes that use GPU 0, or the wrong one:

    - `init_process_group("nccl")` in a program that never calls `torch.cuda.set_device` and passes no `device_id`
    - a barrier or another collective after it in the same function, before the device is set
    - the rank in the job as the number of a GPU of this host: `torch.cuda.set_device(dist.get_rank())`

    ## Why is this bad
    The current device of every process is GPU 0 until it is set. `barrier`, object collectives and `.cuda()` use
    the current device.

    ## What happens with N processes
    All processes of a host put a context and their small collectives on GPU 0: memory there, NCCL's "duplicate GPU
    detected", or a hang in the first barrier. With the rank in the job as the device, the second host has no such GPU.

    ## Known problems
    A device that the launch command binds (`CUDA_VISIBLE_DEVICES` for each process) is not seen. The rank in the job as
    number of a GPU is reported where something mentions several nodes, or the local rank.

    ## Use instead
    `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before `init_process_group`. Or `device_id=` in it, if
    nothing uses `"cuda"` without a number.
    """

    code, name, severity, row = "AR605", "device-not-bound", "warning", "initialisation"
    cluster = 'All processes of a host use GPU 0 for barriers, objects, and everything on "cuda" without a number.'
    advice = "Call torch.cuda.set_device(local_rank) before init_process_group."
    words = ("init_process_group", "init_distributed", "set_device", "torch.device", "cuda:", "device_ids")
    nodes = (ast.Call, ast.JoinedStr)
    calls = (*_JOINS, "torch.cuda.set_device", "torch.device", "set_device_index", "DistributedDataParallel", "barrier")
    bad = (
        """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if __name__ == "__main__":
    dist.init_process_group("nccl")  # <-- found
    model = DistributedDataParallel(torch.nn.Linear(2, 2).cuda())
""",
        """\
# file: train.py
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())  # <-- found
# file: run.sh
torchrun --nnodes=4 --nproc-per-node=8 train.py
""",
    )
    good = (
        """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count())
model = DistributedDataParallel(torch.nn.Linear(2, 2).to(device))
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test and distributed(file)

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if _first_by_rank(file) is node:
            yield self.local(file, node, _IN_JOB, cluster=_SECOND_HOST, advice=_LOCAL_RANK)
        if not isinstance(node, ast.Call) or name_of(node, file) not in _JOINS or has_stars(node):
            return
        backend = given(node, 0, "backend")
        nccl = backend is not None and any(
            isinstance(at, ast.Constant) and at.value == "nccl" for at in reached(backend, file)
        )
        if not nccl or keyword(node, "device_id") is not None:
            return
        if (early := _met_early(node, file)) is not None:
            notes = [Note("the processes are joined here", file.place(node))]
            message = f"{tail_of(early)} is called before a GPU is bound to the process"
            yield self.finding(file.place(early), file.symbol(early), message, notes=notes)
        elif name_of(node, file) == _JOIN and not any(map(_binds, file.code)) and not file.says(*_BY_NUMBER):
            yield self.local(file, node, _UNBOUND)

    def confirm(self, finding: Finding, program: Program) -> bool:
        """Whether nothing else of its program binds a GPU, or it may run on several hosts."""
        path, facts = finding.place.path, program.facts
        if finding.advice == _LOCAL_RANK:
            return not facts.one_host and (facts.several_nodes or facts.says(path, "LOCAL_RANK", "local_rank"))
        wraps = facts.says(path, "DistributedDataParallel", "DDP(", "__main__")
        lines = facts.code(path)
        return bool(finding.notes) or (wraps and not any(map(_binds, lines)))


def _binds(line: str) -> bool:
    """Whether a line gives the process a GPU; ``set_device(0)`` is for one that is alone."""
    return "set_device(0)" not in line and any(word in line for word in _BINDING)


def _number(node: ast.AST, file: File) -> ast.expr | None:
    """Return the number of a device that is set or named: ``set_device(n)``, ``f"cuda:{n}"``, ``device_ids=[n]``."""
    if isinstance(node, ast.JoinedStr):
        head, last = node.values[0], node.values[-1]
        named = isinstance(head, ast.Constant) and head.value == "cuda:" and len(node.values) == 2
        return last.value if named and isinstance(last, ast.FormattedValue) else None
    ids = keyword(node, "device_ids") if isinstance(node, ast.Call) else None
    if isinstance(ids, ast.List) and len(ids.elts) == 1:
        return ids.elts[0]
    if isinstance(node, ast.Call) and node.args:
        if tail_of(node) in ("set_device", "set_device_index"):
            return node.args[0] if not isinstance(node.args[0], ast.JoinedStr) else None
        if name_of(node, file) == "torch.device" and len(node.args) > 1:
            return node.args[1]
    return None


def _first_by_rank(file: File) -> ast.AST | None:
    """Return the first place of a file that takes the rank in the job for the number of a GPU."""

    def find(_: ast.Module) -> ast.AST | None:
        named = [*file.kinds.get(ast.Call, ()), *file.kinds.get(ast.JoinedStr, ())]
        numbers = ((at, _number(at, file)) for at in sorted(named, key=lambda at: getattr(at, "lineno", 0)))
        return next((at for at, number in numbers if number is not None and _is_rank_in_job(number, file)), None)

    return file.once("device by rank", file.tree, find)


def _is_rank_in_job(number: ast.expr, file: File) -> bool:
    """Whether it is the rank in the job for certain, as it is, in a program that does not start its own processes."""
    if file.says(*_STARTS) or origins(number, file) != {"global"}:
        return False
    return not any(
        isinstance(at, ast.BinOp | ast.IfExp | ast.BoolOp) for one in reached(number, file) for at in walk(one)
    )


def _met_early(join: ast.Call, file: File) -> ast.Call | None:
    """Return the first collective after ``join`` in its function, if the device is set there after it alone."""
    calls = [at for at in own(function_of(join, file) or file.tree) if isinstance(at, ast.Call)]
    binds = [at for at in calls if tail_of(at) == "set_device"]
    meets = [
        at for at in calls if at.lineno > join.lineno and tail_of(at) in _MEETS and "cuda" not in name_of(at, file)
    ]
    first = min(meets, key=lambda at: at.lineno, default=None)
    late = first is not None and bool(binds) and all(at.lineno > first.lineno for at in binds)
    return first if late else None
