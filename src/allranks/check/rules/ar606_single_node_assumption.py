"""AR606: an address or a count that is right on one host alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import origins, values
from allranks.check.tree.syntax import given, has_stars, inside, name_of, speaks_of
from allranks.findings import Finding

# The program starts its own processes, so that they are on this host.
_ONE_HOST = ("mp.spawn(", "multiprocessing.spawn(", "start_processes(", "init_rpc(", "Process(target", "mp.Process(")
_LOCAL = ("localhost", "127.0.0.1")
_ROWS = re.compile(r"batch|steps?$|sample|epoch|iters?$|(^|_)bs$|(^|_)(lr|loss)$", re.IGNORECASE)
_NOT_ROWS = re.compile(r"worker|world|node|cpu|thread|per_node", re.IGNORECASE)
_PROCESSES = re.compile(r"RANK|local_rank|get_rank|init_process_group|init_distributed")
_ONE_PROCESS = re.compile(r"local_rank (==|<|in) |not .*distributed|not .*ddp|DataParallel", re.IGNORECASE)
_THIS_HOST = re.compile(r"local", re.IGNORECASE)
_OF_HOST = re.compile(r"local|gpu|device", re.IGNORECASE)
_OTHER_HOSTS = "On hosts with another number of GPUs, ranks share a GPU, or get a number that does not exist."
_LOCAL_RANK = "Take the local rank that the launcher gives: int(os.environ['LOCAL_RANK'])."
_ALONE = re.compile(r"\bDataParallel\(")


_SHARED_OUT = "the number of GPUs of this host is used as the number of processes of the job"


class SingleNodeAssumption(LocalRule):
    """
    ## What it does
    Finds code that works on one host only:

    - `MASTER_ADDR = "localhost"` without a condition, `init_method="tcp://localhost:..."`
    - the number of this host's GPUs as the number of processes: as `world_size`, or to divide or multiply batches and
      steps (`batch_size // torch.cuda.device_count()`)
    - `CUDA_VISIBLE_DEVICES` set to the rank in the job
    - a local rank that is computed from a fixed number of GPUs (`local_rank = rank % 8`)
    - `assert jax.device_count() == 8` in a program that uses the number of its process

    ## Why is this bad
    The program cannot run on two hosts, without a message.

    ## What happens with N processes
    On two hosts, each host makes a separate group and trains separately, or waits for ranks that never connect.

    ## Known problems
    Programs for one host do this on purpose. Programs that start their processes themselves (`mp.spawn`) are not
    reported. Confidence is low for addresses and for the size of the world or a host.

    ## Use instead
    Let the launcher set the address and the ranks (`torchrun`, `allranks run`), or `os.environ.setdefault`.
    """

    code, name, severity, row = "AR606", "single-node-assumption", "info", "initialisation"
    of_nodes = True
    cluster = "On two hosts, each trains separately, or waits for ranks that never connect."
    advice = "Let the launcher set MASTER_ADDR, RANK and WORLD_SIZE."
    words = ("MASTER_ADDR", "init_process_group", "device_count", "CUDA_VISIBLE_DEVICES", "rank")
    nodes = (ast.Assign, ast.Call, ast.Assert, ast.AugAssign, ast.BinOp)
    calls = ("torch.distributed.init_process_group",)
    bad = (
        Example({"train.py": "import os\n\nos.environ['MASTER_ADDR'] = 'localhost'\n"}, at=(3,)),
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist

dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29500", world_size=2, rank=0)
dist.init_process_group("nccl", world_size=torch.cuda.device_count(), rank=0)
"""
            },
            at=(4, 5),
        ),
        Example(
            {
                "train.py": """\
import jax

print(jax.process_index())
assert jax.device_count() == 8, "please check running processes"
"""
            },
            at=(4,),
        ),
        Example(
            {
                "train.py": """\
import os
import torch

rank = int(os.environ["RANK"])
steps = 40
steps //= torch.cuda.device_count()
local_rank = rank % 8
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


def main(rows, batch_size, dist_loss):
    n_gpus = torch.cuda.device_count()
    os.environ["CUDA_VISIBLE_DEVICES"] = str(dist.get_rank())
    dist_loss = dist_loss.loss / torch.cuda.device_count()
    return len(rows) // (n_gpus * batch_size), int(batch_size / n_gpus)
"""
            },
            at=(8, 9, 10, 10),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import os
import torch

size = int(os.environ["WORLD_SIZE"])
steps = 40
steps //= size
nodes = size // torch.cuda.device_count()
os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["LOCAL_RANK"]
"""
            }
        ),
        # One process with all GPUs of the host.
        Example(
            {
                "train.py": """import os
import torch


def main(args, model):
    batch_size = args.batch_size
    if args.local_rank == -1:
        batch_size *= torch.cuda.device_count()
    return batch_size
"""
            }
        ),
        Example(
            {
                "train.py": """\
import os
import multiprocessing as mp


def work(rank, devices):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(devices[rank].split(":")[-1])
    init_distributed(rank, len(devices))


for rank in range(2):
    mp.Process(
        target=work, args=(rank, ["cuda:0", "cuda:1"])
    ).start()
"""
            }
        ),
        # A line for people.
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist

def main(args):
    dist.init_process_group("nccl")
    n_gpus = torch.cuda.device_count()
    print(f"{n_gpus} GPUs, {n_gpus * args.batch_size} rows a step")
"""
            }
        ),
        Example(
            {
                "train.py": """\
import os
import torch.distributed as dist

if "MASTER_ADDR" not in os.environ:
    os.environ["MASTER_ADDR"] = "localhost"
dist.init_process_group("nccl", init_method="env://")
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if file.once("one host", file.tree, lambda _: any(word in file.text for word in _ONE_HOST)):
            return
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            if not isinstance(target, ast.Subscript) or name_of(target.value, file) != "os.environ":
                return
            asked = any(isinstance(p, ast.If | ast.Try | ast.TryStar) for p, _ in inside(node, file))
            if not asked and _is(target.slice, "MASTER_ADDR") and _is_local(node.value):
                yield self._meant(file, node, "the address of rank 0 is this host, on every host")
            if not asked and _is(target.slice, "CUDA_VISIBLE_DEVICES") and _is_rank(node.value, file):
                yield self.local(file, node, "the rank in the job is used as the number of a GPU of this host")
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            if _is_of_fixed_host(node, file):
                found = self._meant(file, node, f"every host is assumed to have {ast.unparse(node.right)} processes")
                yield replace(found, cluster=_OTHER_HOSTS, advice=_LOCAL_RANK)
        elif isinstance(node, ast.AugAssign | ast.BinOp):
            if isinstance(node.op, ast.FloorDiv | ast.Div | ast.Mult) and _shared_out(node, file):
                yield self.local(file, node, _SHARED_OUT)
        elif isinstance(node, ast.Assert):
            if _counts_devices(node.test, file) and "process_index" in file.text:
                yield self._meant(file, node, "the job may have no more devices than one host")
        elif isinstance(node, ast.Call) and name_of(node, file) == "torch.distributed.init_process_group":
            method, size = given(node, 1, "init_method"), given(node, 3, "world_size")
            if has_stars(node):
                return
            if method is not None and _is_local(method):
                yield self._meant(file, node, "the address of rank 0 is this host, on every host")
            elif isinstance(size, ast.Call) and name_of(size, file) == "torch.cuda.device_count":
                yield self._meant(file, node, "the world is as large as this host has GPUs")

    def stands(self, finding: Finding, program: Program) -> bool:
        """Rows are shared out among processes where this file, or the programs that it is a part of, have several."""
        if finding.message != _SHARED_OUT:
            return True
        lines, path = program.facts.lines, finding.place.path
        if any(map(_PROCESSES.search, lines[path])):
            return True
        around = ["\n".join(lines[one]) for one in program.facts.around(path) if one in lines]
        starts = any(_ALONE.search(text) or any(word in text for word in _ONE_HOST) for text in around)
        return any(map(_PROCESSES.search, around)) and not starts

    def _meant(self, file: File, node: ast.AST, message: str) -> Finding:
        """Return a finding of what many programs do on purpose."""
        return self.finding(file.place(node), file.symbol(node), message, confidence="low")


def _is(node: ast.AST, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def _is_rank(value: ast.expr, file: File) -> bool:
    """``str(dist.get_rank())``"""
    made = origins(value, file)
    return (
        "global" in made
        and not made & {"local", "sum"}
        and not speaks_of(value, _THIS_HOST)
        and not any(isinstance(at, ast.BinOp) for at in walk(value))
    )


def _is_of_fixed_host(node: ast.BinOp, file: File) -> bool:
    """``local_rank = rank % 8``"""
    above = next(file.parents(node), None)
    size = node.right.value if isinstance(node.right, ast.Constant) else None
    if not isinstance(above, ast.Assign) or not isinstance(size, int) or size < 2:
        return False
    return speaks_of(above.targets[0], _OF_HOST) and "global" in origins(node.left, file)


def _shared_out(node: ast.AugAssign | ast.BinOp, file: File) -> bool:
    """Rows or steps are divided by, or multiplied with, the GPUs of this host, where several processes run."""
    whole, count = (node.target, node.value) if isinstance(node, ast.AugAssign) else (node.left, node.right)
    if isinstance(node.op, ast.Mult) and _counts_gpus(whole, file):
        whole, count = count, whole
    if any(isinstance(parent, ast.JoinedStr) for parent in file.parents(node)):
        return False  # a line for people
    if not _counts_gpus(count, file) or not speaks_of(whole, _ROWS) or speaks_of(whole, _NOT_ROWS):
        return False
    alone = _ALONE.search(file.text) or any(
        isinstance(p, ast.If) and _ONE_PROCESS.search(ast.unparse(p.test)) for p, _ in inside(node, file)
    )
    return not alone


def _counts_gpus(node: ast.expr, file: File) -> bool:
    """``torch.cuda.device_count()``, or a name under which nothing else is stored."""
    if isinstance(node, ast.Call):
        return name_of(node, file) == "torch.cuda.device_count"
    stored = values(node, file)
    return bool(stored) and all(isinstance(v, ast.Call) and _counts_gpus(v, file) for v in stored)


def _counts_devices(test: ast.expr, file: File) -> bool:
    """``jax.device_count() == 8``."""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return False
    counted, number = test.left, test.comparators[0]
    constant = isinstance(number, ast.Constant) and isinstance(number.value, int)
    return constant and isinstance(counted, ast.Call) and name_of(counted, file) == "jax.device_count"


def _is_local(node: ast.AST) -> bool:
    """A constant, or an f-string that begins with one, that names this host."""
    first = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
    text = first.value if isinstance(first, ast.Constant) else None
    return isinstance(text, str) and text.removeprefix("tcp://").startswith(_LOCAL)
