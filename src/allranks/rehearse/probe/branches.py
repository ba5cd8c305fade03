"""Record the values that a program's branches depend on, and the exceptions that it catches.

The program's files are instrumented (``instrument``) while Python loads them. Compiled files of the program are neither
read nor written.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib.machinery
import sys
from collections import Counter
from typing import Any

from allranks.rehearse.probe.instrument import CAUGHT, CONDITION, OPERAND, RESET, Site, instrumented
from allranks.rehearse.probe.page import POSITION
from allranks.rehearse.probe.record import Recorder, is_main_thread

# How many evaluations of one branch, and exceptions of one handler, are recorded.
_MOST = 60


class BranchRecorder:
    """What the instrumented program calls."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._sites: list[Site] = []
        self._counts: Counter[int] = Counter()
        self._operands: dict[int, list[tuple[int, float]]] = {}
        self._is_inside = False

    def attach(self) -> None:
        """Instrument all files of the program that are loaded from now on."""
        functions = {OPERAND: self.operand, CONDITION: self.condition, CAUGHT: self.caught, RESET: self.reset}
        for name, function in functions.items():
            setattr(builtins, name, function)
        loader: Any = importlib.machinery.SourceFileLoader
        compile_source, get_code = loader.source_to_code, loader.get_code

        def source_to_code(one: Any, data: Any, path: Any, **options: Any) -> Any:
            if not isinstance(path, str) or isinstance(data, ast.AST) or not self._recorder.is_users(path):
                return compile_source(one, data, path, **options)
            return compile_source(one, self._instrumented(data, path), path, **options)

        def get_code_of(one: Any, name: str) -> Any:
            path = one.get_filename(name)
            if not self._recorder.is_users(path):
                return get_code(one, name)
            return one.source_to_code(one.get_data(path), path)

        loader.source_to_code, loader.get_code = source_to_code, get_code_of

    def _instrumented(self, data: Any, path: str) -> ast.Module:
        tree, sites = instrumented(data, path, len(self._sites))
        self._sites += sites
        return tree

    def operand(self, number: int, value: Any) -> Any:
        """Keep a float of a condition until the condition is evaluated; return the value unchanged."""
        if self._counts[number] < _MOST and not self._is_inside and is_main_thread():
            self._is_inside = True
            try:
                if (known := _float(value)) is not None:
                    self._operands.setdefault(number, []).append((self._recorder.page.get(POSITION), known))
            finally:
                self._is_inside = False
        return value

    def reset(self, number: int) -> bool:
        """Forget the floats of a condition, because its value is computed anew; return True."""
        self._operands.pop(number, None)
        return True

    def condition(self, number: int, value: Any) -> Any:
        """Record the floats of a condition, unless the ranks have synchronised since; return the value unchanged."""
        if (operands := self._operands.pop(number, None)) and is_main_thread():
            position = self._recorder.page.get(POSITION)
            values = [known for at, known in operands if at == position]
            if values:
                site = self._sites[number]
                self._counts[number] += 1
                self._recorder.write(
                    "branch",
                    at=site.line,
                    count=self._counts[number],
                    values=values,
                    controls=list(site.controls),
                    within=list(site.within),
                )
        return value

    def caught(self, number: int) -> None:
        """Record the exception that a handler of the program is about to handle."""
        error, site = sys.exc_info()[1], self._sites[number]
        self._counts[number] += 1
        if error is None or self._counts[number] > _MOST or not is_main_thread():
            return
        self._recorder.write(
            "caught",
            error=f"{type(error).__name__}: {error}"[:200],
            controls=list(site.controls),
            within=list(site.within),
            in_loop=site.in_loop,
        )


@functools.cache
def _is_array(kind: object) -> bool:
    """Return whether a type is one of arrays. A DTensor is none: its value needs a collective.

    Only the type is looked at. An object of the program may raise for an unknown attribute.
    """
    return all(hasattr(kind, name) for name in ("ndim", "dtype", "tolist")) and not hasattr(kind, "placements")


def _float(value: Any) -> float | None:
    """Return a float, or the element of a 0-dimensional array of floats. Return None for any other value."""
    kind: object = type(value)
    if kind is float:
        return float(value)
    if not _is_array(kind):
        return None
    try:
        if value.ndim or "float" not in str(value.dtype) or not getattr(value, "is_fully_addressable", True):
            return None
        return float(value.tolist())  # float(value) would be recorded as a value that the program reads
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return None  # not an array, or one without a value (it is being traced)
