"""Refuse the import of packages that need a GPU with a message that says what to do."""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

from allranks.rehearse.accelerator import names

_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError"})
_ANY_ERROR = frozenset({"Exception", "BaseException", ""})


class Finder:
    """An entry of sys.meta_path that finds a package as others do, and lets its import fail.

    Packages that only need a GPU once a kernel runs are imported, where the program has no way around the import.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        message = names.needs_gpu(name)
        if not message or "." in name:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next((found for finder in others if (found := finder.find_spec(name, path, target))), None)
        if name in names.IMPORTABLE and not _can_fail(sys._getframe(1)):
            return spec
        if spec is not None and spec.loader is not None:
            spec.loader = _Refusal(message, name)  # type: ignore[assignment]
        return spec


class _Refusal:
    """A loader that raises."""

    def __init__(self, message: str, name: str) -> None:
        self._message, self._name = message, name

    def create_module(self, spec: Any) -> None:
        """Return None: Python makes the module."""

    def exec_module(self, module: ModuleType) -> None:  # noqa: ARG002 - the protocol of loaders
        raise ModuleNotFoundError(self._message, name=self._name)


def _can_fail(frame: FrameType | None) -> bool:
    """Return whether a caller catches the failure of an import, at the line where it imports (or asks for the spec)."""
    while frame is not None:
        if frame.f_lineno in _guarded_lines(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


@functools.cache
def _guarded_lines(path: str) -> frozenset[int]:
    """Return the lines of a file in a ``try`` or ``with suppress`` that catches ImportError.

    A block that catches every error counts if it imports at its top level.
    """
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return frozenset()
    lines: set[int] = set()
    for node in ast.walk(tree):
        caught = set(_caught(node))
        if isinstance(node, ast.Try | ast.With) and caught:
            imports = any(isinstance(statement, ast.Import | ast.ImportFrom) for statement in node.body)
            if caught & _IMPORT_ERRORS or (caught & _ANY_ERROR and imports):
                lines |= set(range(node.body[0].lineno, (node.body[-1].end_lineno or node.body[-1].lineno) + 1))
    return frozenset(lines)


def _caught(node: ast.AST) -> Iterator[str]:
    """Yield the names of the errors that a block catches, without their modules; "" for a bare ``except``."""
    each: list[ast.expr | None] = []
    if isinstance(node, ast.Try):
        each = [handler.type for handler in node.handlers]
    elif isinstance(node, ast.With):
        calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        each = [one for call in calls if ast.unparse(call.func).endswith("suppress") for one in call.args]
    for one in each:
        for error in one.elts if isinstance(one, ast.Tuple) else [one]:
            yield ast.unparse(error).rpartition(".")[2] if error is not None else ""


def attach() -> None:
    """Refuse these imports from now on."""
    sys.meta_path.insert(0, Finder())
