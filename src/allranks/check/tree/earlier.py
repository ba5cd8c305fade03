"""What certainly ran before a node of one file: above it, in functions called there, above each call leading to it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from allranks.check.sources.source import File
from allranks.check.tree.origins import function_called
from allranks.check.tree.syntax import Function, blocks, calls_of, function_of, inside, own

DEEPEST = 4
Sought = Callable[[ast.Call], bool]


def earlier(node: ast.AST, file: File, sought: Sought, depth: int = 0) -> ast.Call | None:
    """Return a call that is ``sought`` and certainly ran before ``node``, wherever this file calls its function."""
    for parent, child in inside(node, file):
        if (found := first_of(_before(parent, child), file, sought)) is not None:
            return found
    function = function_of(node, file)
    if function is None or depth > DEEPEST:
        return None
    ways = [earlier(call, file, sought, depth + 1) for call in callers(function, file)]
    return ways[0] if ways and None not in ways else None


def callers(function: Function, file: File) -> list[ast.Call]:
    """Return where this file calls a function, but for the function itself."""
    called = (call for call in calls_of(file).get(function.name, ()) if function not in file.parents(call))
    return [call for call in called if function_called(call, file) is function]


def first_of(parts: Iterable[ast.AST], file: File, sought: Sought, depth: int = 0) -> ast.Call | None:
    """Return the first call in ``parts``, or in what they certainly run of this file, that is ``sought``."""
    for part in parts:
        for at in [part, *own(part)]:
            if not isinstance(at, ast.Call):
                continue
            if sought(at):
                return at
            function = function_called(at, file) if depth < DEEPEST else None
            if function is not None and (found := first_of(_certain(function), file, sought, depth + 1)) is not None:
                return found
    return None


def is_plain(statement: ast.stmt) -> bool:
    """Say whether all of a statement runs where it is come to."""
    return isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Assert)


def _before(parent: ast.AST, child: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs before ``child`` in its parent: the test of its `if`, the statements above that do not branch."""
    if isinstance(parent, ast.If | ast.While) and child is not parent.test:
        yield parent.test
    for block in blocks(parent):
        if child in block:
            yield from (s for s in block[: block.index(child)] if is_plain(s))


def _certain(function: Function) -> Iterator[ast.stmt]:
    """Yield the statements of a function that run in each call of it."""
    if isinstance(function, ast.AsyncFunctionDef) or any(
        isinstance(at, ast.Yield | ast.YieldFrom) for at in own(function)
    ):
        return
    for statement in function.body:
        if is_plain(statement) or isinstance(statement, ast.Return):
            yield statement
        if any(isinstance(at, ast.Return | ast.Raise) for at in [statement, *own(statement)]):
            return
