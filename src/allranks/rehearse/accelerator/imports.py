"""Refuse the import of packages that need a GPU with a message that says what to do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

from allranks.rehearse.accelerator import names
from allranks.rehearse.guards import ANY_ERROR, guards_of

_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError"})


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
    """Return whether a caller catches the failure of an import, at the line where it imports (or asks for the spec).

    A block that catches every error counts if it imports at its top level.
    """
    while frame is not None:
        for guard in guards_of(frame.f_code.co_filename):
            is_meant = guard.caught & _IMPORT_ERRORS or (guard.caught & ANY_ERROR and guard.imports)
            if is_meant and frame.f_lineno in guard.lines:
                return True
        frame = frame.f_back
    return False


def attach() -> None:
    """Refuse these imports from now on."""
    sys.meta_path.insert(0, Finder())
