"""Find the blocks of a source file that catch errors: ``try`` with its handlers, and ``with suppress(...)``."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator
from dataclasses import dataclass

ANY_ERROR = frozenset({"Exception", "BaseException", ""})


@dataclass(frozen=True, slots=True)
class Guard:
    """The lines of a block in which an error is caught.

    - ``caught``: the names of the errors, without their modules; "" for a bare ``except``.
    - ``imports``: the block imports at its top level.
    - ``gives_up``: a handler raises again, or ends the program.
    """

    lines: range
    caught: frozenset[str]
    imports: bool
    gives_up: bool


@functools.cache
def guards_of(path: str) -> tuple[Guard, ...]:
    """Return the guarded blocks of a source file; none if it cannot be parsed."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return ()
    return tuple(guard for node in ast.walk(tree) if (guard := _guard(node)) is not None)


def _guard(node: ast.AST) -> Guard | None:
    if not isinstance(node, ast.Try | ast.With) or not (caught := frozenset(_caught(node))):
        return None
    handlers = node.handlers if isinstance(node, ast.Try) else []
    lines = range(node.body[0].lineno, (node.body[-1].end_lineno or node.body[-1].lineno) + 1)
    imports = any(isinstance(statement, ast.Import | ast.ImportFrom) for statement in node.body)
    return Guard(lines, caught, imports, any(_gives_up(one) for handler in handlers for one in ast.walk(handler)))


def _gives_up(node: ast.AST) -> bool:
    return isinstance(node, ast.Raise) or (
        isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("exit", "_exit", "quit")
    )


def _caught(node: ast.Try | ast.With) -> Iterator[str]:
    """Yield the names of the errors that a block catches, without their modules; "" for a bare ``except``."""
    each: list[ast.expr | None]
    if isinstance(node, ast.Try):
        each = [handler.type for handler in node.handlers]
    else:
        calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        each = [one for call in calls if ast.unparse(call.func).endswith("suppress") for one in call.args]
    for one in each:
        for error in one.elts if isinstance(one, ast.Tuple) else [one]:
            yield ast.unparse(error).rpartition(".")[2] if error is not None else ""
