"""AR205: a collective in a program that may run without a process group."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.sources.source import File
from allranks.check.tree.alone_too import MEETINGS, makes_always, meets_alone
from allranks.check.tree.asked_there import Files, is_asked
from allranks.check.tree.syntax import name_of
from allranks.findings import Finding, Note

# Who calls these has made a group, or needs none; or another launcher makes one of one process.
_OTHERS = (
    "initialize_model_parallel",
    "deepspeed",
    "lightning",
    "mmengine",
    "mmcv",
    "horovod",
    "MASTER_ADDR",
    "MASTER_PORT",
)


class CollectiveWithoutInitCheck(LocalRule, ProgramRule):
    """
    ## What it does
    Finds a collective, or a query for the rank or the size, without a condition:

    - in a function that makes the process group under a condition, or that elsewhere checks a switch for many processes
      (`args.distributed`, `self.use_ddp`), as its class does
    - in a file that makes an `Accelerator`, which joins no processes if there is one, and that elsewhere checks whether
      the processes are joined
    - in a program that reaches it without any check on the whole way, if none of its files always makes a group

    ## Why is this bad
    If the group was not made, the collective raises.

    ## What happens with N processes
    Nothing: this is a fault of the run with one process. The program with which people debug stops at a barrier.

    ## Known problems
    If the group is made elsewhere for the other case, the finding is wrong.

    ## Use instead
    `if dist.is_initialized(): dist.barrier()`.
    """

    code, name, severity, row = "AR205", "collective-without-init-check", "warning", "collectives"
    cluster = "A run of one process stops here: there is no process group."
    advice = "Check dist.is_initialized() first, or make a group of one."
    words = ("torch.distributed", "import distributed")
    nodes = (ast.FunctionDef,)
    bad = (
        Example(
            {
                "train.py": """\
import torch.distributed as dist


def main(args):
    if args.distributed:
        dist.init_process_group("nccl")
    train(args)
    dist.barrier()
"""
            },
            at=(8,),
        ),
        Example(
            {
                "trainer.py": """\
import torch.distributed as dist


class Trainer:
    def __init__(self, args, model):
        self.args, self.model = args, model
        if args.distributed:
            self.model = DDP(model)

    def fit(self, loader):
        for batch in loader:
            self.step(batch)
        if self.args.rank == 0:
            print("done")
            dist.barrier()
        if self.args.rank != 0:
            dist.barrier()

    def share(self, scores):
        if dist.is_initialized():
            dist.all_reduce(scores)
"""
            },
            at=(15,),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from accelerate import Accelerator

accelerator = Accelerator()


def load(path):
    data = read(path)
    dist.barrier()
    return data


def main(path):
    data = load(path)
    train(accelerator, data)
    if dist.is_initialized():
        dist.barrier()
"""
            },
            at=(9,),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from start import join


def main(args, loader):
    join(args)
    for batch in loader:
        step(batch)
    if args.distributed:
        print("one of several")
    dist.barrier()
""",
                "start.py": """\
import os
import torch.distributed as dist


def join(args):
    if "RANK" in os.environ:
        args.distributed = True
    else:
        args.distributed = False
        return
    dist.init_process_group("nccl")
""",
            },
            at=(11,),
        ),
        Example(
            {
                "start.py": """\
import os
import torch.distributed as dist


def join():
    if "RANK" not in os.environ:
        return
    dist.init_process_group("nccl")


def wait():
    dist.barrier()
""",
                "train.py": """\
from start import join, wait


def main(loader):
    join()
    for batch in loader:
        step(batch)
    wait()


main([])
""",
            },
            at=(12,),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist


def main():
    try:
        dist.init_process_group("nccl")
        rank = dist.get_rank()
    except RuntimeError:
        rank = 0
    train(rank)
    dist.barrier()


main()
"""
            },
            at=(11,),
        ),
    )
    good = (
        Example(
            {
                "start.py": """\
import os
import torch.distributed as dist


def join():
    if "RANK" not in os.environ:
        return
    dist.init_process_group("nccl")
    dist.barrier()


def joined():
    return dist.is_initialized()


def wait():
    if joined():
        dist.barrier()
""",
                "train.py": """\
from start import join, wait

join()
wait()
""",
            },
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from accelerate import Accelerator


def load(path):
    data = read(path)
    dist.barrier()
    return data


def main(path):
    accelerator = Accelerator()
    train(accelerator, load(path))
    dist.barrier()
"""
            }
        ),
        Example(
            {
                "trainer.py": """\
import torch
import torch.distributed as dist


class Trainer:
    def __init__(self, model):
        self.use_ddp = torch.cuda.is_available()
        self.model = DDP(model) if self.use_ddp else model
        self.size = dist.get_world_size()
""",
                "start.py": """\
import torch.distributed as dist


def join():
    if dist.is_initialized():
        return
    dist.init_process_group("gloo")
""",
                "train.py": """\
from start import join
from trainer import Trainer

join()
Trainer(model)
""",
            }
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist


def main(args):
    if args.distributed:
        dist.init_process_group("nccl")
    train(args)
    if dist.is_initialized():
        dist.barrier()


def several(args):
    if torch.cuda.device_count() > 1:
        dist.init_process_group("nccl")
    train(args)
    if torch.cuda.device_count() > 1:
        dist.barrier()


def other(args):
    if not dist.is_initialized():
        dist.init_process_group("nccl")
    dist.barrier()


def third(args):
    if args.distributed:
        dist.init_process_group("nccl")
    else:
        dist.init_process_group("gloo", rank=0, world_size=1)
    dist.barrier()
"""
            }
        ),
    )

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        assert isinstance(node, ast.FunctionDef)
        if not (calls := meets_alone(node, file)):
            return
        called = name_of(calls[0], file).rpartition(".")[2]
        found = self.local(file, calls[0], f"{called} is called also where no process group was made")
        yield replace(found, notes=tuple(Note("so it continues here", file.place(call)) for call in calls[1:]))

    def stands(self, finding: Finding, program: Program) -> bool:
        """Its file is no part left lying, and no file of its programs makes the group in any case; of the whole
        project, where none of them makes one."""
        facts, path = program.facts, finding.place.path
        known = Files(facts.lines)
        files = known.with_makers(path, facts.around(path))
        makes = _makings(files) or _makings(known.with_makers(path, facts.lines))
        runs = any(map(_does_something, (file.tree for file in files if file.path == path)))
        runs = runs or any(event.sure and event.place.path == path for event in program.events)
        return (runs or not facts.is_left_out(path)) and not (makes and all(makes))

    def check(self, program: Program) -> Iterator[Finding]:
        """Yield the first collective of each function that a program comes to without asking, where none of its files
        makes a group in any case."""
        told: set[str] = set()
        files = Files(program.facts.lines)
        alone: dict[str, bool] = {}
        for event in program.collectives():
            called = event.name.rpartition(".")[2]
            # Under another name it may be what a condition has picked: `reduce = all_reduce if joined else same`.
            by_name = called in program.facts.lines[event.place.path][event.place.line - 1]
            reached = event.name in MEETINGS and by_name and event.sure and "first" in event.roles
            way = [*(step.place for step in event.chain), event.place]
            if not reached or event.function in told or is_asked(way, files):
                continue
            told.add(event.function)
            path = event.place.path
            if path not in alone:
                alone[path] = _may_be_alone(files.with_makers(path, program.facts.around(path)))
            if alone[path]:
                yield self.found(event, f"{called} is called also where no process group was made")


def _makings(files: list[File]) -> list[bool]:
    """Return of each file that makes a group whether it does in any case."""
    return [made for file in files if (made := makes_always(file)) is not None]


def _may_be_alone(files: list[File]) -> bool:
    makes = _makings(files)
    return bool(makes) and not any(makes) and not any(word in file.text for file in files for word in _OTHERS)


def _does_something(module: ast.Module) -> bool:
    """It does not only define something."""
    return any(isinstance(at, ast.If | ast.For | ast.With | ast.Try) or _is_call(at) for at in module.body)


def _is_call(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
