"""Refuse the import of packages that need a GPU with a message that says what to do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from allranks.rehearse.accelerator import names


class Finder:
    """An entry of sys.meta_path that finds a package as others do, and lets its import fail."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        message = names.needs_gpu(name)
        if not message or "." in name:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next((found for finder in others if (found := finder.find_spec(name, path, target))), None)
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


def attach() -> None:
    """Refuse these imports from now on."""
    sys.meta_path.insert(0, Finder())
