"""AR605: an NCCL process that has not said which GPU is its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.program import Astray, Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.sources.source import File, module_name
from allranks.check.tables.data import WRAPPERS
from allranks.check.tree.bound_late import JOINS, goes_by_number, met_too_early, never_binds, used_above
from allranks.check.tree.device_numbers import SET_DEVICE, by_rank_in_job, fixed_map, off_its_own
from allranks.check.tree.syntax import distributed, name_of, tail_of
from allranks.findings import Finding, Note

# Words of a project in which something gives each process its GPU.
_BINDING = frozenset(
    [
        *("set_device", "device_id", "CUDA_VISIBLE_DEVICES", "set_device_index", "set_device_idx", "set_cuda_device"),
        *("set_visible_devices", "HIP_VISIBLE_DEVICES", "setup_device", "init_device", "set_gpu_device"),
    ]
)
_BINDERS = frozenset(
    {"deepspeed", "accelerate", "lightning", "ray", "colossalai", "composer", "mmengine", "mmcv", "jax"}
)
_UNBOUND = "an NCCL process group is made, and no GPU is bound to the process"
_IN_JOB = "the rank in the job is used as the number of a GPU of this host"
# How a file says that it is started, and what else it says where there may be other hosts.
_STARTED, _NODES = (
    re.compile(r"torchrun\s+--nproc[-_]per[-_]node"),
    re.compile(r"(?i)nnodes|num_nodes|node_rank|multi-?node"),
)
_SECOND_HOST = "It works on one host; on the second there is no GPU of that number: invalid device ordinal."
_LOCAL_RANK = "Take the rank on the host: int(os.environ['LOCAL_RANK']), or the rank modulo torch.cuda.device_count()."
_ONE_GPU = "All processes of a host load the whole model onto GPU 0, and run out of memory there."
_MAP = "Give each process its own: device_map={'': local_rank}."


class DeviceNotBound(LocalRule, ProgramRule):
    """
    ## What it does
    Finds processes that use GPU 0, or the wrong one:

    - `init_process_group("nccl")` in a project that never calls `torch.cuda.set_device` and passes no `device_id`
    - a barrier or another collective after it (or after `deepspeed.init_distributed`) in the same function, before the
      device is set
    - on a program's way from its entry, the first barrier, object collective or use of `"cuda"` without a number,
      before the device is set
    - a model that every rank loads with `device_map={"": 0}`
    - the rank in the job as the number of a GPU of this host: `torch.cuda.set_device(dist.get_rank())`,
      `device_map={"": accelerator.process_index}`, `dist.barrier(device_ids=[dist.get_rank()])`
    - `.cuda()` in a process that names its GPU by number elsewhere and does not set it
    - `torch.cuda.device(local_rank)` as a statement, which nothing enters

    ## Why is this bad
    The current device of every process is GPU 0 until it is set. `barrier`, object collectives and `.cuda()` use
    the current device.

    ## What happens with N processes
    All processes of a host put a context and their small collectives on GPU 0: memory there, NCCL's "duplicate GPU
    detected", or a hang in the first barrier. With the rank in the job as the device, the second host has no such GPU.

    ## Known problems
    A device that the launch command binds (`CUDA_VISIBLE_DEVICES` for each process) is not seen. Confidence is low if
    the file that joins puts everything on a GPU by its number.

    ## Use instead
    `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before `init_process_group`. Or `device_id=` in it, if
    nothing uses `"cuda"` without a number.
    """

    code, name, severity, row = "AR605", "device-not-bound", "warning", "initialisation"
    cluster = 'All processes of a host use GPU 0 for barriers, objects, and everything on "cuda" without a number.'
    advice = "Call torch.cuda.set_device(local_rank) before init_process_group."
    words = (
        *("init_process_group", "init_distributed", "set_device", "torch.device", "device_ids", "device_map"),
        *("cuda:", ".cuda(", ".to("),
    )
    nodes = (ast.Call, ast.JoinedStr, ast.BinOp)
    calls = (
        *(*JOINS, "torch.cuda.set_device", "torch.device", *WRAPPERS, "from_pretrained", "pipeline"),
        *("torch.Tensor.cuda", "torch.Tensor.to", "set_device", "set_device_index", "torch.distributed.barrier"),
    )
    bad = (
        Example(
            {
                "train.py": """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(model):
    print(torch.cuda.get_device_name())
    dist.init_process_group(backend="nccl")
    return DDP(model, device_ids=[int(os.environ["LOCAL_RANK"])])
"""
            },
            at=(9,),
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
        Example(
            {
                "setup.py": """\
import os
import torch
import torch.distributed as dist
from world import get_world

def setup():
    torch.cuda.set_device(get_world().rank)
    dist.init_process_group("nccl")
def setup_alone():
    rank = -1
    if "RANK" in os.environ:
        rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
"""
            },
            at=(7, 13),
        ),
        Example(
            {
                "setup.py": """\
import torch.distributed as dist
from accelerate import Accelerator
from deepspeed.accelerator import get_accelerator
from transformers import AutoModel


def setup(self):
    get_accelerator().set_device(dist.get_rank())
    model = AutoModel.from_pretrained("m", device_map={"": Accelerator().process_index})
    return model
"""
            },
            at=(8, 9),
        ),
        Example(
            {
                "train.py": """\
import os
import torch
import torch.distributed as dist

torch.empty(1, device="cuda", requires_grad=True).backward()
rank = int(os.environ["RANK"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
"""
            },
            at=(5,),
        ),
        Example(
            {
                "distributed.py": """\
import torch.distributed as dist

BACKEND = "nccl"


def setup():
    dist.init_process_group(backend=BACKEND)
""",
                "train.py": """\
import torch
from distributed import setup
from torch.nn.parallel import DistributedDataParallel

setup()
model = DistributedDataParallel(torch.nn.Linear(2, 2).cuda())
""",
            },
            at=(7,),
        ),
        Example(
            {
                "world.py": """\
import torch.distributed as dist


def get_rank():
    return dist.get_rank() if dist.is_initialized() else 0


def synchronize():
    if dist.is_initialized():
        dist.barrier(group=dist.group.WORLD, device_ids=[get_rank()])
"""
            },
            at=(10,),
        ),
        Example(
            {
                "train.py": """\
import deepspeed
from transformers import AutoModel

model = AutoModel.from_pretrained("m", device_map={"": 0})
"""
            },
            at=(4,),
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
        # Another file binds the device.
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from device import bind


def main(model):
    bind()
    dist.init_process_group("nccl")
    return DistributedDataParallel(model)
""",
                "device.py": """\
import os
import torch


def bind():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
""",
            }
        ),
        # All processes on one host, or the rank brought down to it.
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist


def main(rank, world):
    dist.init_process_group("nccl", rank=rank, world_size=world)
    torch.cuda.set_device(rank)
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
"""
            }
        ),
    )

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.expr):
            return
        if node in file.once("device by rank", file.tree, lambda _: by_rank_in_job(file)):
            found = self.local(file, node, _IN_JOB, cluster=_SECOND_HOST, advice=_LOCAL_RANK)
            # Who starts it on one host, as the file itself says, hardly ever means several.
            one_host = _STARTED.search(file.text) is not None and _NODES.search(file.text) is None
            yield replace(found, confidence="low") if one_host else found
        if not isinstance(node, ast.Call):
            return
        if (what := file.once("off its own", file.tree, lambda _: off_its_own(file)).get(node)) is not None:
            yield self.local(file, node, what)
        name = name_of(node, file)
        if name in JOINS:
            if name == JOINS[0] and never_binds(node, file):
                yield _unsure(self.local(file, node, _UNBOUND), file.text)
            elif (early := met_too_early(node, file)) is not None:
                note = Note("the processes are joined here", file.place(node))
                message = f"{tail_of(early)} is called before a GPU is bound to the process"
                yield self.finding(file.place(early), file.symbol(early), message, notes=[note])
        elif SET_DEVICE.search(name) and (used := used_above(node, file)) is not None:
            note = Note("the GPU is bound here", file.place(node))
            message = f"{ast.unparse(used)} uses a GPU before one is bound to the process"
            yield self.finding(file.place(used), file.symbol(used), message, notes=[note])
        elif (where := fixed_map(node)) is not None and distributed(file):
            yield self.local(file, where, "every rank puts the model on the same GPU", cluster=_ONE_GPU, advice=_MAP)

    def stands(self, finding: Finding, program: Program) -> bool:
        if finding.message == _IN_JOB:
            path, facts = finding.place.path, program.facts
            inside = finding.symbol != module_name(path) and any("__main__" in line for line in facts.lines[path])
            return not facts.one_host and not (inside and facts.nobody_calls(finding.symbol, path))
        return finding.message != _UNBOUND or finding.place not in program.bound

    def check(self, program: Program) -> Iterator[Finding]:
        """Look for what uses a GPU before one is bound on a program's way, and for a process group in a project in
        which nothing binds one."""
        yield from map(self._astray, program.astray)
        if program.names & _BINDING or program.packages & _BINDERS:
            return
        if not any(event.name in WRAPPERS and event.active for event in program.events):
            return
        for event in program.calls(JOINS[0]):
            backend = event.argument(0, "backend")
            constant = backend.constant if backend is not None else None
            told = event.argument("device_id") is not None
            if event.active and not told and isinstance(constant, str) and "nccl" in constant.lower():
                yield _unsure(self.found(event, _UNBOUND), "\n".join(program.facts.lines[event.place.path]))

    def _astray(self, one: Astray) -> Finding:
        way = [Note(f"called in {step.symbol}", step.place) for step in one.chain]
        if one.bound is None:
            used = Note(f"{one.name} uses the current GPU here", one.place)
            return self.finding(one.joined.place, one.joined.symbol, _UNBOUND, notes=[used, *way])
        meets = one.kind == "meet"
        what = f"{one.name.rpartition('.')[2]} goes through the GPU" if meets else f"{one.name} uses a GPU"
        notes = [Note("the processes are joined here", one.joined.place), Note("the GPU is bound here", one.bound)]
        message = f"{what} before one is bound to the process"
        return self.finding(one.place, one.symbol, message, notes=[*notes, *way])


def _unsure(finding: Finding, text: str) -> Finding:
    """Lower the confidence where the file goes by the GPU's number: mostly nothing is left that takes the current."""
    return replace(finding, confidence="low") if goes_by_number(text) else finding
