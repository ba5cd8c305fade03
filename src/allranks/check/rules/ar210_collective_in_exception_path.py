"""AR210: a collective that is reached through an exception."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.summaries.project import SHARDS
from allranks.check.tables.collectives import COLLECTIVES
from allranks.check.tables.receivers import RECEIVERS, RETURNS
from allranks.check.tree.origins import latest
from allranks.check.tree.reduced_later import leaves_before
from allranks.check.tree.syntax import (
    asks_rank,
    function_of,
    inside,
    is_constant,
    name_of,
    own,
    rank_guard,
    speaks_of,
    tail_of,
)
from allranks.findings import Finding

_MEETINGS = frozenset(c.pattern for c in COLLECTIVES if c.form == "call" and not c.hidden and "*" not in c.pattern)
_OF_ANY = frozenset(c.pattern[2:] for c in COLLECTIVES if c.form == "call" and not c.hidden and c.pattern[:2] == "*.")
_OF_MPI = frozenset(c.pattern.rpartition(".")[2] for c in COLLECTIVES if c.pattern.startswith("mpi4py."))
_SAVES = {c.pattern: c.sharded for c in COLLECTIVES if c.pattern.rpartition(".")[2].startswith(("save", "load_"))}
_COMM = re.compile(r"(?i)comm|mpi|world")
_KINDS = re.compile(r"(?i)barrier|gather|reduce|broadcast|bcast|scatter|save|load")
_INTERRUPTS = re.compile(r"KeyboardInterrupt|SystemExit")
_JOINING = ("init_process_group", "initialize", "init_distributed", "initialize_dist", "shutdown", "init")


_BACKGROUND = re.compile(r"(?i)future|pending|handle|background|thread|async|task")
_WAITS = re.compile(
    r"(?i)^_?(barrier|wait_for_everyone|sync_global_devices|synchronize_ranks|(all_?reduce|all_?gather)\w*)$"
)


class CollectiveInExceptionPath(LocalRule):
    """
    ## What it does
    Finds collectives in an `except` or `finally` block. Saves and loads that are collectives count (of Accelerate, if
    its file mentions sharded models). It also finds a process that fails before a collective of its function. It raises
    behind a guard on the first rank, requests the result of background work, or asserts something about a number before
    its reduction.

    ## Why is this bad
    An exception happens on one rank. The others do not enter the handler. Or, in a `finally`, they reach it from
    another place, with other collectives after it.

    ## What happens with N processes
    The rank that failed waits in the handler for ranks that wait elsewhere. The error is printed after the timeout, or
    never.

    ## Known problems
    An exception that all ranks raise alike (a setting, a version) is safe, and is reported, too.

    Confidence is low, except for a handler whose collective differs from that of its `try`. In a `finally` block mostly
    all ranks arrive, an interrupt reaches all, and a rank that raises before a collective mostly ends the job. It is
    low, too, if the ranks that do not fail continue with the same call, and the handler leaves.

    ## Use instead
    Let the exception end the process, and let the launcher end the others (`allranks.init()` does).
    """

    code, name, severity, row = "AR210", "collective-in-exception-path", "warning", "collectives"
    cluster = "The rank that failed waits here for ranks that wait for it elsewhere; its error is not seen."
    advice = "Make no collective after an exception: let it end the process, and let the launcher end the others."
    words = (
        *("barrier", "all_reduce", "all_gather", "allgather", "broadcast", "gather", "reduce", "sync_global_devices"),
        *("mpi4py", "wait_for_everyone", "save_state", "save_checkpoint"),
    )
    nodes = (ast.Call, ast.Raise, ast.Assert, ast.If)
    calls = (*_MEETINGS, *_OF_ANY, *_SAVES, "result")
    bad = (
        Example(
            {
                "train.py": """\
import torch.distributed as dist


def main():
    try:
        train()
    finally:
        dist.barrier()
        dist.destroy_process_group()
"""
            },
            at=(8,),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist


def main():
    try:
        train()
    except RuntimeError:
        dist.barrier()
        raise
"""
            },
            at=(8,),
        ),
        Example(
            {
                "save.py": """\
import os
import torch.distributed as dist


def save(path, data, future, weight):
    if dist.get_rank() == 0:
        if os.path.exists(path):
            raise FileExistsError(path)
        os.mkdir(path)
    dist.barrier()
    future.result()
    dist.barrier()
    assert weight > 0
    dist.all_reduce(weight)
"""
            },
            at=(8, 11, 13),
        ),
        Example(
            {
                "train.py": """\
import deepspeed
from mpi4py import MPI


class Run:
    def __init__(self, comm, model):
        self.comm = comm
        self.engine, *_ = deepspeed.initialize(model=model)

    def fit(self, accelerator, out):
        try:
            self.epochs()
        except KeyboardInterrupt:
            self.engine.save_checkpoint(out)
        except Exception:
            accelerator.save_state(out)
            raise
        finally:
            self.comm.Barrier()
"""
            },
            at=(14, 16, 19),
        ),
    )
    good = (
        Example(
            {
                "save.py": """\
import torch.distributed as dist


def save(path, data, future, weight, level):
    if level == 0:
        raise ValueError(level)
    dist.all_reduce(weight)
    assert weight > 0
    try:
        future.result()
    except RuntimeError as error:
        print(error)
    dist.barrier()


def fetch(accelerator, path):
    try:
        if accelerator.is_main_process:
            download(path)
        accelerator.wait_for_everyone()
    except OSError:
        accelerator.wait_for_everyone()
        raise
"""
            },
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist

try:
    from apex import amp
except ImportError:
    amp = None
try:
    dist.barrier()
finally:
    dist.destroy_process_group()
"""
            }
        ),
        # A context manager: all ranks leave the caller's block.
        Example(
            {
                "train.py": """\
import contextlib
import torch.distributed as dist


@contextlib.contextmanager
def main_first(is_main):
    if not is_main:
        dist.barrier()
    try:
        yield
    finally:
        if is_main:
            dist.barrier()
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.Assert | ast.If):
            fails = isinstance(node, ast.Assert) or isinstance(node.body[-1], ast.Raise)
            if fails and not file.is_test and (name := leaves_before(node, file)):
                says = f"a process raises because of its own {name}, and the others reduce it"
                yield replace(self.local(file, node.test, says), confidence="low")
            return
        if isinstance(node, ast.Raise) or tail_of(node) == "result":
            if not file.is_test and _fails_alone(node, file) and (meeting := _met_later(node, file)):
                says = f"a rank that fails here leaves the others waiting in {meeting}"
                yield replace(self.local(file, node, says), confidence="low")
            return
        assert isinstance(node, ast.Call)
        called = tail_of(node)
        if not _meets(node, file) or called in _JOINING or _lends_a_block(node, file):
            return
        for parent, child in inside(node, file):
            if isinstance(parent, ast.ExceptHandler) and not _is_everywhere(parent):
                if _is_met(node, parent, file):
                    return
                found = self.local(file, node, f"{called} is called in an exception handler")
                alone = _is_alone(parent, called, file) and not _is_awaited(node, parent, file)
                yield found if alone else replace(found, confidence="low")
                return
            if isinstance(parent, ast.Try | ast.TryStar) and child in parent.finalbody:
                found = self.local(file, node, f"{called} is called in a finally block")
                yield replace(found, confidence="low")
                return


def _meets(call: ast.Call, file: File) -> bool:
    """Whether all processes meet in a call: by its name, or by what its receiver is."""
    if name_of(call, file) in _MEETINGS:
        return True
    called = tail_of(call)
    if not isinstance(call.func, ast.Attribute) or file.is_test:
        return False
    if called in _OF_ANY or (called in _OF_MPI and "mpi4py" in file.text and speaks_of(call.func.value, _COMM)):
        return True
    made = (name_of(one, file) for one in latest(call.func.value, file) if isinstance(one, ast.Call))
    kinds = {RETURNS.get(name, name) for name in made} | {RECEIVERS.get(tail_of(call.func.value), "")}
    met = [_SAVES[f"{kind}.{called}"] for kind in kinds if f"{kind}.{called}" in _SAVES]
    return any(not in_parts or SHARDS.search(file.text) for in_parts in met)


def _is_met(call: ast.Call, handler: ast.ExceptHandler, file: File) -> bool:
    """Whether those who do not fail make the same call at the end of what is tried."""
    tried = next(file.parents(handler), None)
    last = tried.body[-1] if isinstance(tried, ast.Try | ast.TryStar) else None
    return last is not None and any(
        isinstance(at, ast.Call) and ast.unparse(at) == ast.unparse(call) for at in walk(last)
    )


def _is_awaited(call: ast.Call, handler: ast.ExceptHandler, file: File) -> bool:
    """Whether those who do not fail make the same call as soon as they have tried: the failed one is waited for there,
    though perhaps not in what comes next."""
    tried = next(file.parents(handler), None)
    if not isinstance(tried, ast.Try | ast.TryStar) or not isinstance(handler.body[-1], ast.Return | ast.Continue):
        return False
    around = next(file.parents(tried), None)
    blocks = [block for _, block in ast.iter_fields(around) if isinstance(block, list)] if around is not None else []
    follows = next((block[at + 1 : at + 2] for block in blocks for at, one in enumerate(block) if one is tried), [])
    first = (tried.orelse or follows)[:1]
    return any(isinstance(at, ast.Expr) and ast.unparse(at.value) == ast.unparse(call) for at in first)


def _is_alone(handler: ast.ExceptHandler, called: str, file: File) -> bool:
    """Whether one process comes to a handler without the others: nobody has interrupted them all, and what is tried
    is no other way to meet in the same."""
    tried = next(file.parents(handler), None)
    body = tried.body if isinstance(tried, ast.Try | ast.TryStar) else []
    meets = {_kind(tail_of(at)) for part in body for at in walk(part) if isinstance(at, ast.Call) and _meets(at, file)}
    kinds = ast.unparse(handler.type) if handler.type is not None else ""
    return _kind(called) not in meets and _INTERRUPTS.search(kinds) is None


def _kind(called: str) -> str:
    found = _KINDS.search(called)
    return found[0].lower() if found else called


def _fails_alone(node: ast.AST, file: File) -> bool:
    """Whether one rank alone raises, or asks for the result of work in the background, which may have failed."""
    around = list(inside(node, file))
    if any(isinstance(parent, ast.Try | ast.TryStar) and child in parent.body for parent, child in around):
        return False
    if isinstance(node, ast.Call):
        return not node.args and speaks_of(node.func, _BACKGROUND)
    return any(
        isinstance(parent, ast.If) and child in parent.body and _is_first(parent.test) for parent, child in around
    )


def _is_first(test: ast.expr) -> bool:
    """``rank == 0``, ``is_main_process``: not their contrary, nor another number."""
    if isinstance(test, ast.Compare):
        return isinstance(test.ops[0], ast.Eq) and is_constant(test.comparators[0], 0) and asks_rank(test)
    return isinstance(test, ast.Name | ast.Attribute | ast.Call) and asks_rank(test)


def _met_later(node: ast.AST, file: File) -> str:
    """Return the collective of its function that all come to behind ``node``; empty if there is none."""
    function = function_of(node, file)
    if function is None:
        return ""
    around = [parent for parent, _ in inside(node, file) if isinstance(parent, ast.If)]
    behind = max((parent.end_lineno or 0 for parent in around), default=getattr(node, "lineno", 0))
    calls = (at for at in own(function) if isinstance(at, ast.Call) and at.lineno > behind)
    return next((tail_of(at) for at in calls if _WAITS.search(tail_of(at)) and rank_guard(at, file) is None), "")


def _lends_a_block(call: ast.Call, file: File) -> bool:
    """The function is a context manager: its `finally` runs after the block of the caller, which all ranks pass."""
    function = function_of(call, file)
    return function is not None and any(isinstance(at, ast.Yield) for at in own(function))


def _is_everywhere(handler: ast.ExceptHandler) -> bool:
    """An exception that comes from the installation or the program's text: all ranks raise it."""
    if handler.type is None:
        return False
    names = {at.id for at in walk(handler.type) if isinstance(at, ast.Name)}
    alike = {"ImportError", "ModuleNotFoundError", "AttributeError", "NotImplementedError", "TypeError", "NameError"}
    return bool(names) and names <= alike
