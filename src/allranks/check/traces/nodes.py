"""The nodes of a trace: what a function calls that other processes notice, and what it depends on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from allranks.check.simulate.given import Given
    from allranks.check.simulate.values import Truth, Value

Span: TypeAlias = tuple[int, int, int, int]


@dataclass(slots=True, eq=False)
class Call:
    """A call of a library's function that some query asks about.

    - ``name``: documented name; ``*.name`` for a method of something unknown. ``entry``: the row of the tables, if it
      is an effect or a collective. ``kind``: that of the effect, or ``collective``, ``local exists``, ``sign wrap``...
    - ``path``, ``span``, ``symbol``: where it is, and in which function. ``target``: the path of the effect as source.
    - ``given``: its arguments, and the object whose method it is. ``where``: the value of the path.
    - ``group``: a collective of some processes only. ``under``: the taint of the conditions around it.
    - ``ordered``: inside a lock, or where one process is let in at a time. ``loops``: loops around it in its function.
    - ``live``: the roles that may reach it in its function.
    """

    name: str
    kind: str
    entry: Any
    path: str
    span: Span
    symbol: str
    given: Given
    where: Value | None = None
    target: str = ""
    ordered: bool = False
    loops: int = 0
    live: int = 15
    under: int = 0
    group: bool = False


@dataclass(slots=True, eq=False)
class Result:
    """What one function does, for one kind of arguments: its trace, and what it returns."""

    symbol: str
    path: str
    line: int
    value: Value
    trace: tuple[Node, ...] = ()
    yields: bool = False
    yielded: Value | None = None
    has_collective: bool = False  # it holds a collective, or an end of the process, at any depth

    def __post_init__(self) -> None:
        self.has_collective = has_collective(self.trace)


@dataclass(slots=True, eq=False)
class Enter:
    """A call of a function of the project. ``starts``: processes are started that run it. ``ordered``: as of a call."""

    result: Result
    span: Span
    live: int = 15
    starts: bool = False
    ordered: bool = False


@dataclass(slots=True, eq=False)
class Branch:
    """A condition: its truth, its taint, its source, and what follows on either side. ``then_live``, ``else_live``: the
    roles that go on after it from there."""

    letters: Truth
    taint: int
    span: Span
    text: str
    then: tuple[Node, ...]
    orelse: tuple[Node, ...]
    test: Value | None = None
    has_collective: bool = False

    def __post_init__(self) -> None:
        self.has_collective = has_collective(self.then) or has_collective(self.orelse)


@dataclass(slots=True, eq=False)
class Loop:
    """A loop. ``often``: the truth of "it goes round at all"; ``taint``: what the number of rounds depends on."""

    often: Truth
    taint: int
    span: Span
    text: str
    body: tuple[Node, ...]
    orelse: tuple[Node, ...] = ()
    counted: bool = False  # a number decides how often: a range, or a test
    has_collective: bool = False

    def __post_init__(self) -> None:
        self.has_collective = has_collective(self.body) or has_collective(self.orelse)


@dataclass(slots=True, eq=False)
class Exit:
    """The function is left: ``return``, ``raise``, ``break``, ``continue``, or the process ends (``end``)."""

    kind: str
    span: Span


@dataclass(slots=True, eq=False)
class Try:
    """A try statement: its body, its handlers, its else and its finally."""

    body: tuple[Node, ...]
    handlers: tuple[tuple[Node, ...], ...]
    orelse: tuple[Node, ...] = ()
    final: tuple[Node, ...] = ()
    swallows: tuple[Span, str] | None = None  # where and how one process goes on after an exception of its own
    span: Span = field(default=(1, 0, 1, 0))
    has_collective: bool = False

    def __post_init__(self) -> None:
        self.has_collective = any(has_collective(part) for part in (self.body, self.orelse, self.final, *self.handlers))


Node: TypeAlias = Call | Enter | Branch | Loop | Exit | Try


WAITED = ("collective", "stop")  # what all processes must call alike


def has_collective(nodes: tuple[Node, ...]) -> bool:
    """Return whether nodes hold a collective, or an end of the process, at any depth."""
    for node in nodes:
        if isinstance(node, Call):
            if node.kind in WAITED:
                return True
        elif isinstance(node, Enter):
            if node.result.has_collective:
                return True
        elif isinstance(node, Exit):
            if node.kind == "end":
                return True
        elif node.has_collective:
            return True
    return False
