"""AR210: a collective that is reached through an exception."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.rule import LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.collectives import collective
from allranks.check.tree.syntax import function_of, inside, own
from allranks.findings import Finding

# What comes from the installation, or from the text of a program, is raised by all ranks; an interrupt reaches all.
_ALIKE = ("ImportError", "ModuleNotFoundError", "AttributeError", "NotImplementedError", "TypeError", "NameError")
_INTERRUPTS = ("KeyboardInterrupt", "SystemExit")
_JOINING = ("init_process_group", "initialize", "destroy_process_group", "shutdown")


class CollectiveInExceptionPath(LocalRule):
    """
    ## What it does
    Finds collectives in an `except` or `finally` block.

    ## Why is this bad
    An exception happens on one rank. The others do not enter the handler. Or, in a `finally`, they reach it from
    another place, with other collectives after it.

    ## What happens with N processes
    The rank that failed waits in the handler for ranks that wait elsewhere. The error is printed after the timeout, or
    never.

    ## Known problems
    An exception that all ranks raise alike (a setting, a version) is safe, and is reported, too. Confidence is low for
    a `finally` block, where mostly all ranks arrive, for an interrupt, which reaches all, and for a handler that makes
    the same call as its `try`.

    ## Use instead
    Let the exception end the process, and let the launcher end the others (`allranks.init()` does).
    """

    code, name, severity, row = "AR210", "collective-in-exception-path", "warning", "collectives"
    cluster = "The rank that failed waits here for ranks that wait for it elsewhere; its error is not seen."
    advice = "Make no collective after an exception: let it end the process, and let the launcher end the others."
    words = ("barrier", "reduce", "gather", "broadcast", "sync_global_devices", "wait_for_everyone", "save_checkpoint")
    nodes = (ast.ExceptHandler, ast.Try)
    bad = (
        """\
import torch.distributed as dist


def main():
    try:
        train()
    except RuntimeError:
        dist.barrier()  # <-- found
        raise
""",
    )
    good = (
        """\
import contextlib
import torch.distributed as dist

try:
    from apex import amp
except ImportError:
    amp = None
try:
    dist.barrier()
finally:
    dist.destroy_process_group()

@contextlib.contextmanager
def main_first(is_main):
    if not is_main:
        dist.barrier()
    try:
        yield
    finally:
        if is_main:
            dist.barrier()
""",
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        function = function_of(node, file)
        lends_a_block = function is not None and any(isinstance(at, ast.Yield) for at in own(function))
        if lends_a_block or file.is_test:  # of a context manager the block of the caller is meant, which all ranks pass
            return
        if isinstance(node, ast.Try):
            for call, called in _collectives(node.finalbody, file):
                yield replace(self.local(file, call, f"{called} is called in a finally block"), confidence="low")
            return
        assert isinstance(node, ast.ExceptHandler)
        caught = {part.id for part in walk(node.type) if isinstance(part, ast.Name)} if node.type is not None else set()
        if caught and caught <= {*_ALIKE}:
            return
        tried = next((parent.body for parent, _ in inside(node, file) if isinstance(parent, ast.Try | ast.TryStar)), [])
        after = (
            [at for at in own(function) if isinstance(at, ast.Expr) and at.lineno > (node.end_lineno or 0)]
            if function
            else []
        )
        also = {called for _, called in _collectives([*tried, *after], file)}
        for call, called in _collectives(node.body, file):
            found = self.local(file, call, f"{called} is called in an exception handler")
            yield replace(found, confidence="low") if called in also or caught & {*_INTERRUPTS} else found


def _collectives(statements: list[ast.stmt], file: File) -> Iterator[tuple[ast.Call, str]]:
    """Yield the collectives in statements, with the last part of their names."""
    for statement in statements:
        for part in walk(statement):
            entry = collective(part, file) if isinstance(part, ast.Call) else None
            if entry is not None and isinstance(part, ast.Call):
                called = entry.name.rpartition(".")[2]
                if called not in _JOINING:
                    yield part, called
