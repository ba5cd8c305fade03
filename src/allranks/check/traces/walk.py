"""From an entry down: which roles reach which call, by which calls of the project."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from allranks.check.simulate.values import EVERY, IDENTITY, RANK, roles_where
from allranks.check.traces.nodes import Branch, Call, Enter, Exit, Loop, Node, Result, Span, Try
from allranks.check.traces.sequences import fails

_CASE = re.compile(r"([\w.]+) == ('\w+')")
Step: TypeAlias = tuple[str, str, Span]  # the function that calls, its file, and where


@dataclass(slots=True, eq=False)
class Reach:
    """A call that an entry reaches.

    - ``certain``: roles that reach it, if conditions that are the same on all ranks hold. ``may``: roles that can.
    - ``chain``: the calls from the entry. ``guard``: the nearest condition that holds for some roles only.
    - ``under``: the taint of the conditions on the way. ``collectives``: collectives of the entry before it.
    - ``turn``: the collectives that the roles which reach it have made before.
    - ``cases``: what the program was asked to do, there: variables and the constants that they are equal to.
    - ``ordered``: on the way, one process is let in at a time, or some roles have met others that come later.
      ``started``: on the way, processes are started.
    """

    call: Call
    root: Result
    certain: int
    may: int
    chain: tuple[Step, ...]
    guard: Branch | None
    under: int
    collectives: int
    ordered: bool
    started: bool = False
    cases: tuple[tuple[str, str], ...] = ()
    turn: int = 0

    @property
    def everyone(self) -> bool:
        """Whether every rank reaches it."""
        return self.certain == EVERY


@dataclass(slots=True)
class _Way:
    certain: int
    may: int
    chain: tuple[Step, ...]
    guard: Branch | None = None
    under: int = 0
    ordered: bool = False
    started: bool = False
    symbol: str = ""
    path: str = ""
    cases: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Walk:
    """Walks over the traces of an entry. A function is walked once for each set of roles that come to it."""

    root: Result
    collectives: int = 0
    reached: list[Reach] = field(default_factory=list)
    _passed: list[int] = field(default_factory=lambda: [0, 0, 0, 0])  # collectives that each role has made
    _in_turns: list[Reach] = field(default_factory=list)
    _made: dict[tuple[int, int], list[int]] = field(default_factory=dict)  # by those in a function, for some roles
    _seen: set[tuple[int, int, int, bool, bool, bool]] = field(default_factory=set)

    def run(self) -> list[Reach]:
        """Return what the entry reaches, in order."""
        way = _Way(EVERY, EVERY, (), symbol=self.root.symbol, path=self.root.path)
        self._nodes(self.root.trace, way)
        if len(set(self._passed)) > 1:  # they never come together again: nobody takes turns
            for reach in self._in_turns:
                reach.ordered = False
        return self.reached

    def _nodes(self, nodes: Sequence[Node], way: _Way) -> None:
        """Walk over nodes; ``way`` has the roles that are left afterwards."""
        for node in nodes:
            if not way.may:
                return
            if isinstance(node, Call):
                self._call(node, way)
            elif isinstance(node, Enter):
                self._enter(node, way)
            elif isinstance(node, Branch):
                self._branch(node, way)
            elif isinstance(node, Loop):
                self._loop(node, way)
            elif isinstance(node, Try):
                self._try(node, way)
            elif isinstance(node, Exit):
                way.certain = way.may = 0

    def _call(self, call: Call, way: _Way) -> None:
        if call.kind == "collective":
            self.collectives += 1
            for role in range(4) if not call.group else ():
                self._passed[role] += way.may & call.live & 1 << role > 0
        turns = len({self._passed[role] for role in range(4) if way.may >> role & 1}) > 1
        ordered = way.ordered or call.ordered
        reach = Reach(
            call,
            self.root,
            way.certain & call.live,
            way.may & call.live,
            way.chain,
            way.guard,
            way.under,
            self.collectives,
            ordered or turns,
            way.started,
            way.cases,
            max((self._passed[role] for role in range(4) if way.may >> role & 1), default=0),
        )
        self.reached.append(reach)
        if turns and not ordered:
            self._in_turns.append(reach)

    def _enter(self, node: Enter, way: _Way) -> None:
        certain, may = way.certain & node.live, way.may & node.live
        started = way.started or node.starts
        ordered = way.ordered or node.ordered
        key = (id(node.result), certain, may, ordered, way.guard is not None, started)
        again = (id(node.result), may)
        if not may or key in self._seen:
            for role, count in enumerate(self._made.get(again, ()) if may else ()):
                self._passed[role] += count
            return
        self._seen.add(key)
        before = list(self._passed)
        step = (way.symbol, way.path, node.span)
        result = node.result
        chain = (*way.chain, step)
        inside = replace(way, certain=certain, may=may, chain=chain, symbol=result.symbol, path=result.path)
        inside.started, inside.ordered = started, ordered
        self._nodes(node.result.trace, inside)
        self._made[again] = [now - then for now, then in zip(self._passed, before, strict=True)]

    def _branch(self, node: Branch, way: _Way) -> None:
        separates = "T" in node.letters and "F" in node.letters
        both, sides = sides_of(node), []
        case = _CASE.fullmatch(node.text) if node.letters == "UUUU" else None
        for nodes, may, certain in both:
            inside = replace(
                way,
                certain=way.certain & certain,
                may=way.may & may,
                guard=node if separates else way.guard,
                under=way.under | node.taint,
            )
            if case is not None and nodes is node.then:
                inside.cases = (*way.cases, (case[1], case[2]))
            here = inside.may
            self._nodes(nodes, inside)
            sides.append((inside, here))
        (then, _), (orelse, _) = sides
        left = way.may & ~(then.may | orelse.may)
        gone = [here & ~side.may for side, here in sides]
        if any(gone):
            way.under |= node.taint
            if separates:
                way.guard = node
        differ = 0
        for (nodes, _, _), leaving, (_, may, certain) in zip(both, gone, reversed(both), strict=True):
            if not fails(nodes):  # who leaves may be one of those who are not sure to stay
                differ |= leaving & may & ~certain
        way.may &= ~left
        way.certain = way.certain & ~left & ~differ
        for side, letter in ((then, "T"), (orelse, "F")):
            way.certain &= ~(roles_where(node.letters, letter) & ~side.may)

    def _loop(self, node: Loop, way: _Way) -> None:
        goes_round = roles_where(node.often, "TUD")
        inside = replace(way, certain=way.certain & goes_round, may=way.may & goes_round)
        self._nodes(node.body, inside)
        way.under |= inside.under  # what it was left for
        self._nodes(node.orelse, way)

    def _try(self, node: Try, way: _Way) -> None:
        before = (way.certain, way.may)
        self._nodes(node.body, way)
        self._nodes(node.orelse, way)
        after = (way.certain, way.may)
        for handler in node.handlers:
            way.certain, way.may = before
            self._nodes(handler, way)
            after = (after[0], after[1] | way.may)
        way.certain, way.may = after
        if node.final:
            now = (way.certain, way.may)
            way.certain, way.may = before
            self._nodes(node.final, way)
            way.certain, way.may = now


def sides_of(node: Branch) -> list[tuple[Sequence[Node], int, int]]:
    """Return the two sides of a condition, each with the roles that may come there, and those that surely do.

    What does not depend on who asks may be true for all: what they do then, they do at one time. Not so where a side is
    for some ranks, and for others perhaps: `rank == 0 or alone`.
    """
    alike = "UD" if not node.taint & (RANK | IDENTITY) else "U"
    found: list[tuple[Sequence[Node], int, int]] = []
    for nodes, known in ((node.then, "T"), (node.orelse, "F")):
        is_guard = node.taint & RANK and "U" in node.letters and known in node.letters
        certain = roles_where(node.letters, known if is_guard else f"{known}{alike}")
        found.append((nodes, roles_where(node.letters, f"{known}UD"), certain))
    return found


def walk(root: Result) -> list[Reach]:
    """Return what an entry reaches, in order."""
    return Walk(root).run()
