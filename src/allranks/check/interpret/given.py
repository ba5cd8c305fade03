"""The arguments of a call."""

from __future__ import annotations

from typing import NamedTuple, cast

from allranks.check.interpret.state import Span
from allranks.check.interpret.truth import FIRST
from allranks.check.interpret.values import ONE_OF, Value, replace
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import Node
from allranks.check.tables.gates import CALLED_ON_MAIN
from allranks.check.tables.passing import NAMING

# Strategies of Lightning that start no other process.
_OF_ONE = ("auto", "dp", "single_device")


class Given(NamedTuple):
    """The arguments of a call."""

    values: tuple[Value, ...]
    keywords: tuple[tuple[str, Value], ...]
    node: Node

    @property
    def span(self) -> Span:
        span: Span = self.node[4]
        return span

    @property
    def of_group(self) -> bool:
        """Whether a method is called on what is called a group: which, nobody knows."""
        function = self.node[1]
        return function[0] == "attr" and bool(render(function[1]).lower().rpartition(".")[2].endswith("group"))

    @property
    def owner(self) -> Node | None:
        """Return the expression whose method is called."""
        function = self.node[1]
        return cast(Node, function[1]) if function[0] == "attr" else None

    def all(self) -> tuple[Value, ...]:
        """Return what is given, by position or by keyword."""
        return (*self.values, *[value for _, value in self.keywords]) if self.keywords else self.values

    def handed(self) -> tuple[Value, ...]:
        """As `all`; what a library calls on rank 0 alone, by the name of its parameter, is behind that."""
        if CALLED_ON_MAIN.isdisjoint(name for name, _ in self.keywords):
            return self.all()
        gated = [replace(v, gate=FIRST["global"], text=n) if n in CALLED_ON_MAIN else v for n, v in self.keywords]
        return (*self.values, *gated)

    def argument(self, *keys: int | str) -> Value | None:
        for key in keys:
            if isinstance(key, int) and key < len(self.values):
                return self.values[key]
            for name, value in self.keywords:
                if name == key:
                    return value
        return None

    def naming(self, path: Value | None) -> Value | None:
        """Return what names the thing that is worked on: the path, or a part of its name that is this process' own."""
        if path is not None and path.private:
            return path
        return next((value for key, value in self.keywords if key in NAMING and value.private), path)

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

    def without_first(self) -> Given:
        """Return the arguments behind the first one, for the function that it is."""
        kind, function, values, keywords, *rest = self.node
        return Given(self.values[1:], (), (kind, function, values[1:], keywords, *rest))

    def told(self, function: Value) -> Given:
        """Return the arguments with those that `functools.partial` gives ``function`` by keyword."""
        again = {key for key, _ in self.keywords}
        return self._replace(keywords=(*self.keywords, *(pair for pair in function.told if pair[0] not in again)))

    def text(self, *keys: int | str) -> str:
        """Return an argument as it stands in the source."""
        found = self.expression(*keys)
        return render(found) if found is not None else ""


def has_several(given: Given) -> bool:
    """Whether what starts processes, one for each device, is told how those meet, or that there are more nodes."""
    strategy, nodes = given.argument("strategy"), given.argument("num_nodes")
    devices = given.argument("devices", "gpus")
    meets = strategy is not None and strategy.constant not in (*_OF_ONE, None)
    more = nodes is not None and nodes.constant not in (1, "1", None)
    return meets or more or (devices is not None and isinstance(devices.constant, int) and devices.constant > 1)


def has_one_device(given: Given) -> bool:
    """Whether what starts processes, one for each device, starts no other: one device for certain, on one node."""
    devices, nodes = given.argument("devices", "gpus"), given.argument("num_nodes")
    if devices is None or not (nodes is None or nodes.constant in (1, "1")):
        return False
    listed = devices.elements if not devices.flags & ONE_OF else None
    return devices.constant in (1, "1") or (listed is not None and len(listed) == 1)
