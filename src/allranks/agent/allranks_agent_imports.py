"""Call a function with a module when that module is imported, or now if it is imported already."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Finder:
    """The first entry of sys.meta_path.

    It finds no module itself, and adds our actions to the modules that others find.
    """

    def __init__(self) -> None:
        self.actions: dict[str, list[Callable[[ModuleType], None]]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self.actions:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next((found for finder in others if (found := finder.find_spec(name, path, target))), None)
        if spec is not None and spec.loader is not None:
            _act_after_import(spec, self.actions[name])
        return spec


def _act_after_import(spec: ModuleSpec, actions: Sequence[Callable[[ModuleType], None]]) -> None:
    execute = spec.loader.exec_module  # type: ignore[union-attr]

    def execute_then_act(module: ModuleType) -> None:
        execute(module)
        if module.__name__ == spec.name:  # a loader may serve several modules (zipimport)
            for action in actions:
                _run_action(action, module)

    spec.loader.exec_module = execute_then_act  # type: ignore[union-attr, method-assign]


def _run_action(action: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Run an action. If it fails (it uses private parts of a library), print a line and let the program continue."""
    try:
        action(module)
    except Exception as error:
        print(
            f"allranks: cannot attach to {module.__name__} ({type(error).__name__}: {error}). The program runs, but"
            " the launcher sees less of it; is this version newer than allranks knows?",
            file=sys.stderr,
        )


_FINDER = _Finder()


def after_import(name: str, action: Callable[[ModuleType], None]) -> None:
    """Call `action(module)` once the module has been executed, before its importer continues."""
    _FINDER.actions.setdefault(name, []).append(action)
    if name in sys.modules:
        _run_action(action, sys.modules[name])
    elif _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
