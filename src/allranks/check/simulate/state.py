"""What the simulation keeps while a function runs: its variables, and what objects hold."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from allranks.check.simulate.joining import join, with_others
from allranks.check.simulate.values import (
    ANYTHING,
    EVERY,
    NONE,
    Function,
    Library,
    Made,
    ModuleObject,
    Truth,
    Value,
    by_role,
    of_role,
)
from allranks.check.traces.nodes import Node

Slot: TypeAlias = tuple[Hashable, str]  # an object or a module, and the name of an attribute


@dataclass(slots=True, eq=False)
class Jumps:
    """The roles that left the body of a loop by ``break`` or ``continue``, and their variables."""

    broken: int = 0
    continued: int = 0
    variables: list[dict[str, Value]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Frame:
    """A function (or module, or class body) while it runs. ``live``: the roles that may still be here."""

    module: ModuleObject
    symbol: str
    env: dict[str, Value]
    parent: Frame | None = None
    function: Function | None = None
    live: int = EVERY
    trace: list[Node] = field(default_factory=list)
    returned: list[tuple[int, Value, int]] = field(default_factory=list)  # roles, value, taint of the conditions
    yielded: list[tuple[int, Value, int]] = field(default_factory=list)  # as `returned`
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    ordered: int = 0  # contexts around that let one process in at a time
    forgiven: int = 0  # try statements around that catch that another process was first
    loops: int = 0
    under: int = 0  # taint of the conditions around
    yields: bool = False
    jumps: list[Jumps] = field(default_factory=list)  # of the loops around, the inner one last

    @property
    def path(self) -> str:
        return self.module.path


class Heap:
    """Attributes of objects and variables of modules. Layers are laid over it while a branch runs, and merged.

    A recording notes which slots were read before they were written, and with which value: what a function's result
    depends on.
    """

    def __init__(self) -> None:
        self._layers: list[dict[Slot, Value | None]] = [{}]
        self._recordings: list[Recording] = []
        self._names: dict[Hashable, dict[str, None]] = {}

    def get(self, owner: Hashable, name: str) -> Value | None:
        """Return an attribute; None if it has none."""
        slot = (owner, name)
        value = self._peek(slot)
        for recording in reversed(self._recordings):
            if slot in recording.written or slot in recording.read:
                break
            recording.read[slot] = value
        return value

    def set(self, owner: Hashable, name: str, value: Value, roles: int = EVERY) -> None:
        """Store an attribute for these roles; the others keep what they have."""
        slot = (owner, name)
        if roles != EVERY:
            old = self.get(owner, name)
            if old is None:
                old = _absent(owner)
            value = by_role(of_role(value if roles >> role & 1 else old, role) for role in range(4))
        self._layers[-1][slot] = value
        self._names.setdefault(owner, {})[name] = None
        if self._recordings:
            self._recordings[-1].written.add(slot)

    def _peek(self, slot: Slot) -> Value | None:
        for layer in reversed(self._layers):
            if slot in layer:
                return layer[slot]
        return None

    def names(self, owner: Hashable) -> Iterator[tuple[str, Value]]:
        """Yield the attributes of an object or module, and their values."""
        for name in self._names.get(owner, ()):
            value = self._peek((owner, name))
            if value is not None:
                yield name, value

    def push(self) -> None:
        """Lay a layer over the heap."""
        self._layers.append({})

    def pop(self) -> dict[Slot, Value | None]:
        """Take the upper layer away, and return what was written in it."""
        return self._layers.pop()

    def differs(self, layer: dict[Slot, Value | None]) -> bool:
        """Return whether a layer that was taken away changes what is below it."""
        return any(self._peek(slot) != value for slot, value in layer.items())

    def apply(self, layer: dict[Slot, Value | None]) -> None:
        """Write what a layer has."""
        for (owner, name), value in layer.items():
            if value is not None:
                self.set(owner, name, value)

    def merge(
        self, letters: Truth, live: tuple[int, int], layers: tuple[dict[Slot, Value | None], ...], also: int
    ) -> None:
        """Write what two branches wrote: for each role what its branch has. ``live``: the roles that came to the end of
        each."""
        for slot in dict.fromkeys([*layers[0], *layers[1]]):
            before = self._peek(slot)
            one, other = (layer.get(slot, before) for layer in layers)
            a, b = (_absent(slot[0]) if value is None else value for value in (one, other))
            self.set(*slot, merged(letters, live, a, b, also))

    @contextmanager
    def base_layer(self) -> Iterator[None]:
        """Read and write the heap itself: what a module binds is there on all branches, not on that which imports it
        first."""
        layers, recordings = self._layers, self._recordings
        self._layers, self._recordings = layers[:1], []
        try:
            yield
        finally:
            self._layers, self._recordings = layers, recordings

    def forget_settings(self) -> None:
        """Forget what a program has given its settings: another begins with its own."""
        for slot in list(self._layers[-1]):
            if isinstance(slot[0], Library | Made):
                self._layers[-1][slot] = None

    def record(self) -> Recording:
        """Begin to note what is read and written."""
        recording = Recording()
        self._recordings.append(recording)
        return recording

    def end(self, recording: Recording) -> None:
        """End the recording that was begun last, and note what it read and wrote in the one around it."""
        self._recordings.pop()
        if self._recordings:
            outer = self._recordings[-1]
            for slot, value in recording.read.items():
                if slot not in outer.written:
                    outer.read.setdefault(slot, value)
            outer.written |= recording.written

    def holds(self, recording: Recording) -> bool:
        """Return whether all that was read then is the same now."""
        return all(self._peek(slot) == value for slot, value in recording.read.items())

    def touch(self, recording: Recording) -> None:
        """Note in the recordings under way that a result was used which depends on these slots."""
        for slot in recording.read:
            self.get(*slot)


@dataclass(slots=True, eq=False)
class Recording:
    """What was read (before it was written) and written meanwhile."""

    read: dict[Slot, Value | None] = field(default_factory=dict)
    written: set[Slot] = field(default_factory=set)


def _absent(owner: Hashable) -> Value:
    """Return what an attribute is before it is stored: settings have values that the program does not show."""
    return ANYTHING if isinstance(owner, Library) else NONE


def merged(letters: Truth, live: tuple[int, int], one: Value, other: Value, also: int) -> Value:
    """Return a variable after a branch. ``letters``: the condition. ``live``: the roles that reach the end of the first
    and of the second side; what a side has that nobody leaves does not count."""
    if one is other or one == other:
        return one
    if letters == "UUUU" and live[0] == live[1] and (several := with_others(one, other)) is not None:
        return several
    made = []
    for role, letter in enumerate(letters):
        a, b = of_role(one, role), of_role(other, role)
        here, there = live[0] >> role & 1, live[1] >> role & 1
        if here and there:
            made.append(a if letter == "T" else b if letter == "F" else join(a, b, also if letter == "D" else 0))
        else:
            made.append(a if here else b)
    return by_role(made)


def merge_variables(
    letters: Truth,
    live: tuple[int, int],
    sides: tuple[dict[str, Value], dict[str, Value]],
    also: int,
) -> dict[str, Value]:
    """Return the variables of a function after a branch."""
    one, other = sides
    if one is other:
        return one
    found = dict(one)
    for name in _changed(one, other):
        a, b = one.get(name), other.get(name)
        if a is not None and b is not None:
            found[name] = merged(letters, live, a, b, also)
        elif a is None and b is not None:
            found[name] = b
    return found


def _changed(one: dict[str, Value], other: dict[str, Value]) -> Iterator[str]:
    for name, value in one.items():
        if other.get(name) is not value:
            yield name
    for name in other:
        if name not in one:
            yield name


def around(frame: Frame) -> Frame | None:
    """Return the frame of the function whose variables a function that is defined here sees; None at the top."""
    scope: Frame | None = frame
    while scope is not None and scope.function is None:
        scope = scope.parent
    return scope


def holder(frame: Frame | None, name: str) -> Frame | None:
    """Return the nearest frame, this one or one around it, that has a variable; None if none has it."""
    while frame is not None and name not in frame.env:
        frame = frame.parent
    return frame


def place_of(node: ast.AST) -> tuple[int, int, int, int]:
    """Return the span of a node: line, column, last line, last column, as the parser counts them."""
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    return line, column, getattr(node, "end_lineno", None) or line, getattr(node, "end_col_offset", None) or column
