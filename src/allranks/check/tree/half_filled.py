"""Folders that are filled file by file behind a test for the folder, which is there as soon as the first one begins."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.earlier import callers
from allranks.check.tree.syntax import function_of, inside, keyword, leaves, own, tail_of

_ASKS = ("isdir", "exists", "is_dir", "listdir", "iterdir", "scandir")
_WAITS = re.compile(r"(?i)barrier|wait_for|synchroni[sz]e|sync_global")
_DEEPEST = 3


def lets_others_by(fetch: ast.Call, file: File) -> bool:
    """Say whether ``fetch`` runs only where its ``local_dir`` is not there, and nobody waits for it afterwards."""
    folder = keyword(fetch, "local_dir")
    if folder is None or not any(_asks_for(_plain(folder), test) for test in _tests(fetch, file)):
        return False
    return not _is_awaited(fetch, file)


def _tests(node: ast.AST, file: File) -> Iterator[ast.expr]:
    """Yield the conditions that must have been false, or hold a `not`, for ``node`` to run, in its own function."""
    for parent, child in inside(node, file):
        if isinstance(parent, ast.If) and (child in parent.orelse or (child in parent.body and _denies(parent.test))):
            yield parent.test
        body = getattr(parent, "body", None)
        for above in body[: body.index(child)] if isinstance(body, list) and child in body else ():
            if isinstance(above, ast.If) and leaves(above.body):
                yield above.test


def _denies(test: ast.expr) -> bool:
    return any(isinstance(at, ast.UnaryOp) and isinstance(at.op, ast.Not) for at in walk(test))


def _asks_for(folder: str, test: ast.expr) -> bool:
    asked = (at for at in walk(test) if isinstance(at, ast.Call) and tail_of(at) in _ASKS)
    return any(_plain(subject) == folder for at in asked if (subject := _subject(at)) is not None)


def _subject(call: ast.Call) -> ast.expr | None:
    if call.args:
        return call.args[0]
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def _plain(path: ast.expr) -> str:
    """Return a path as it stands, without what makes a text or a path of it."""
    while isinstance(path, ast.Call) and tail_of(path) in ("str", "Path", "fspath") and len(path.args) == 1:
        path = path.args[0]
    return ast.unparse(path)


def _is_awaited(node: ast.AST, file: File, depth: int = 0) -> bool:
    """Processes meet below ``node``: in its function, or where that is called."""
    function, line = function_of(node, file), getattr(node, "lineno", 0)
    calls = (at for at in own(function or file.tree) if isinstance(at, ast.Call))
    if any(at.lineno > line and _WAITS.search(tail_of(at)) for at in calls):
        return True
    above = callers(function, file) if function is not None and depth < _DEEPEST else []
    return any(_is_awaited(call, file, depth + 1) for call in above)
