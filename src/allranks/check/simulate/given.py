"""The arguments of one call."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TypeAlias

from allranks.check.simulate.values import Const, Value

_PLACES = ("device", "map_location")
Keywords: TypeAlias = tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """What a call is given, and its node. ``receiver``: the object whose method is called."""

    node: ast.AST
    arguments: tuple[Value, ...] = ()
    keywords: Keywords = ()
    receiver: Value | None = None

    def argument(self, *keys: int | str) -> Value | None:
        """Return the first argument that is given under one of these positions or keywords."""
        for key in keys:
            if isinstance(key, int):
                if key < len(self.arguments):
                    return self.arguments[key]
            else:
                for name, value in self.keywords:
                    if name == key:
                        return value
        return None

    def has(self, key: int | str, constant: object) -> bool:
        """Return whether an argument is this constant (any value for ``any``)."""
        value = self.argument(key)
        return value is not None and (constant == "any" or value == Const(constant))

    @property
    def first(self) -> Value | None:
        """The first positional argument."""
        return self.arguments[0] if self.arguments else None

    @property
    def every(self) -> tuple[Value, ...]:
        """All arguments that say what a call gives; on which device, does not."""
        return (*self.arguments, *(value for name, value in self.keywords if name not in _PLACES))

    def expression(self, *keys: int | str) -> ast.expr | None:
        """Return the source of an argument; None if the call does not write it."""
        if not isinstance(self.node, ast.Call):
            return None
        for key in keys:
            if isinstance(key, int) and key < len(self.node.args):
                return self.node.args[key]
            found = next((one.value for one in self.node.keywords if one.arg == key), None)
            if found is not None:
                return found
        return None

    def handed(self, arguments: tuple[Value, ...], source: int | str) -> Given:
        """Return the call that another makes with ``arguments``, which are written from a position on, or in the tuple
        of a keyword."""
        node = self.node
        if isinstance(node, ast.Call):
            written = node.args[source:] if isinstance(source, int) else getattr(self.expression(source), "elts", [])
            keywords = node.keywords if isinstance(source, int) else []
            node = ast.copy_location(ast.Call(node.func, list(written), keywords), node)
        return Given(node, arguments, self.keywords if isinstance(source, int) else ())

    @property
    def owner(self) -> ast.expr | None:
        """The expression whose method is called."""
        func = self.node.func if isinstance(self.node, ast.Call) else None
        return func.value if isinstance(func, ast.Attribute) else None

    @property
    def line(self) -> int:
        """The line of the call."""
        return getattr(self.node, "lineno", 1)
