"""The arguments of a call."""

from __future__ import annotations

from typing import NamedTuple, cast

from allranks.check.render import render
from allranks.check.state import Span
from allranks.check.summary import Node
from allranks.check.values import Value


class Given(NamedTuple):
    """The arguments of a call."""

    values: tuple[Value, ...]
    keywords: tuple[tuple[str, Value], ...]
    node: Node

    @property
    def span(self) -> Span:
        span: Span = self.node[4]
        return span

    def all(self) -> tuple[Value, ...]:
        """Return what is given, by position or by keyword."""
        return (*self.values, *(value for _, value in self.keywords))

    def argument(self, *keys: int | str) -> Value | None:
        for key in keys:
            if isinstance(key, int) and key < len(self.values):
                return self.values[key]
            for name, value in self.keywords:
                if name == key:
                    return value
        return None

    def expression(self, *keys: int | str) -> Node | None:
        """Return the expression of an argument."""
        for key in keys:
            if isinstance(key, int) and key < len(self.node[2]):
                found: Node = self.node[2][key]
                return found
            for name, node in self.node[3]:
                if name == key:
                    return cast(Node, node)
        return None

    def text(self, *keys: int | str) -> str:
        """Return an argument as it stands in the source."""
        found = self.expression(*keys)
        return render(found) if found is not None else ""
