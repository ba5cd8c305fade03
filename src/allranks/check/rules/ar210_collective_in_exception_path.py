"""AR210: a collective that is reached through an exception."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.nodes import walk
from allranks.check.rule import Example, LocalRule
from allranks.check.source import File
from allranks.check.syntax import function_of, inside, name_of, own
from allranks.check.tables.collectives import COLLECTIVES
from allranks.findings import Finding

_MEETINGS = frozenset(c.pattern for c in COLLECTIVES if c.form == "call" and not c.hidden and "*" not in c.pattern)
_JOINING = ("init_process_group", "initialize", "init_distributed", "initialize_dist", "shutdown", "init")


class CollectiveInExceptionPath(LocalRule):
    """
    ## What it does
    Finds collectives in an `except` or `finally` block.

    ## Why is this bad
    Exceptions happen on one rank. The others do not enter the handler; or, in a `finally`, they come there from another
    place, with other collectives behind them.

    ## What happens with N processes
    The rank that failed waits in the handler for peers that wait for it elsewhere. The error, which would have said
    what is wrong, is printed after the timeout or never.

    ## Known problems
    An exception that all ranks raise alike (a setting, a version) is safe, and is reported too.

    ## Use instead
    Let the exception end the process, and let the launcher end the others (`allranks.init()` does).
    """

    code, name, severity, row = "AR210", "collective-in-exception-path", "warning", "collectives"
    default = False
    cluster = "The rank that failed waits here for ranks that wait for it elsewhere; its error is not seen."
    advice = "Do not meet after an exception: let it end the process, and have the launcher end the others."
    words = ("barrier", "all_reduce", "all_gather", "allgather", "broadcast", "gather", "reduce", "sync_global_devices")
    nodes = (ast.Call,)
    calls = _MEETINGS
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
    )
    good = (
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
        if not isinstance(node, ast.Call):
            return
        called = name_of(node, file)
        if called not in _MEETINGS or called.rpartition(".")[2] in _JOINING or _lends_a_block(node, file):
            return
        for parent, child in inside(node, file):
            if isinstance(parent, ast.ExceptHandler) and not _is_everywhere(parent):
                yield self.local(file, node, f"{called.rpartition('.')[2]} is called in an exception handler")
                return
            if isinstance(parent, ast.Try) and child in parent.finalbody:
                yield self.local(file, node, f"{called.rpartition('.')[2]} is called in a finally block")
                return


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
