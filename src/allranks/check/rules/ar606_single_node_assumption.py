"""AR606: an address or a count that is right on one host alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.source import File
from allranks.check.syntax import given, has_stars, inside, name_of
from allranks.findings import Finding

# The program starts its own processes, so that they are on this host.
_ONE_HOST = ("mp.spawn(", "multiprocessing.spawn(", "start_processes(", "init_rpc(", "Process(target")
_LOCAL = ("localhost", "127.0.0.1")


class SingleNodeAssumption(LocalRule):
    """
    ## What it does
    Finds `MASTER_ADDR = "localhost"` without a condition, `init_method="tcp://localhost:..."`, and the number of this
    host's GPUs in the place of the number of processes: as `world_size`, or as what work is divided by (`steps //=
    torch.cuda.device_count()`). Also `assert jax.device_count() == 8` in a program that asks for its process: the job
    may have more devices than one host.

    ## Why is this bad
    The program cannot run on two hosts, and does not say so.

    ## What happens with N processes
    On two hosts: each host makes a group of its own and trains alone, or waits for ranks that will never come.

    ## Known problems
    Programs that are meant for one host do this on purpose; those that start their processes themselves
    (`mp.spawn`) are left alone. The rule is off unless selected.

    ## Use instead
    Let the launcher set the address and the ranks (`torchrun`, `allranks run`), or `os.environ.setdefault`.
    """

    code, name, severity, row = "AR606", "single-node-assumption", "info", "initialisation"
    default = False
    cluster = "On two hosts, each trains alone, or waits for ranks that never come."
    advice = "Let the launcher set MASTER_ADDR, RANK and WORLD_SIZE."
    words = ("MASTER_ADDR", "init_process_group", "device_count")
    nodes = (ast.Assign, ast.Call, ast.Assert, ast.AugAssign)
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
"""
            },
            at=(6,),
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
            asked = any(isinstance(p, ast.If | ast.Try) for p, _ in inside(node, file))
            if not asked and _is(target.slice, "MASTER_ADDR") and _is_local(node.value):
                yield self.local(file, node, "the address of rank 0 is this host, on every host")
        elif isinstance(node, ast.AugAssign):
            counts = isinstance(node.value, ast.Call) and name_of(node.value, file) == "torch.cuda.device_count"
            if counts and isinstance(node.op, ast.FloorDiv | ast.Div) and "RANK" in file.text:
                yield self.local(file, node, "the GPUs of this host are taken for the processes of the job")
        elif isinstance(node, ast.Assert):
            if _counts_devices(node.test, file) and "process_index" in file.text:
                yield self.local(file, node, "the job may have no more devices than one host")
        elif isinstance(node, ast.Call) and name_of(node, file) == "torch.distributed.init_process_group":
            method, size = given(node, 1, "init_method"), given(node, 3, "world_size")
            if has_stars(node):
                return
            if method is not None and _is_local(method):
                yield self.local(file, node, "the address of rank 0 is this host, on every host")
            elif isinstance(size, ast.Call) and name_of(size, file) == "torch.cuda.device_count":
                yield self.local(file, node, "the world is as large as this host has GPUs")


def _is(node: ast.AST, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


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
