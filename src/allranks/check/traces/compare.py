"""Where two roles, or two processes of one role, go on to different sequences of collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from allranks.check.simulate.values import DIFFERS, ROLES, Truth
from allranks.check.traces.nodes import Branch, Call, Enter, Exit, Loop, Node, Result, Span, Try, meet
from allranks.check.traces.walk import Step

# A sequence of what one role meets: ("meet", op) · ("choice", then, orelse) · ("loop", items) · ("exit", kind).
Sequence_: TypeAlias = tuple[Any, ...]
_LEAVING = ("return", "break", "continue", "end")


@dataclass(slots=True, eq=False)
class Divergence:
    """Processes that go on to different collectives.

    - ``branch``: the condition (or the loop) where they part; ``path`` and ``symbol``: its file and function.
    - ``call``: the first collective that not all reach. ``at``: where its function calls it or what leads to it.
    - ``cause``: ``rank`` (a condition on the rank), ``return`` (one role leaves the function), ``process`` (a condition
      that each process decides for itself), ``rounds`` (processes go round a loop a different number of times),
      ``order`` (the same calls in another order).
    - ``first``, ``others``: the ops that the sides go on to. ``who``: the roles of the first side.
    """

    branch: Branch | Loop
    path: str
    symbol: str
    call: Call
    at: Span
    cause: str
    taint: int
    first: tuple[str, ...]
    others: tuple[str, ...]
    who: Truth
    root: Result
    chain: tuple[Step, ...]


@dataclass(slots=True)
class Comparison:
    """Compares the roles of an entry."""

    root: Result
    found: list[Divergence] = field(default_factory=list)
    _sequences: dict[tuple[int, int], Sequence_] = field(default_factory=dict)
    _seen: set[tuple[int, int]] = field(default_factory=set)

    def run(self) -> list[Divergence]:
        """Return where roles part, in order."""
        self._function(self.root, 0b1111, ())
        return self.found

    # Sequences

    def of(self, result: Result, role: int) -> Sequence_:
        """Return what a role meets in a function."""
        key = (id(result), role)
        if not result.meets:
            return ()
        if key not in self._sequences:
            self._sequences[key] = ()
            self._sequences[key] = _without_end(self.items(result.trace, role))
        return self._sequences[key]

    def items(self, nodes: Sequence[Node], role: int) -> Sequence_:
        """Return what a role meets in nodes, up to where it leaves them."""
        found: list[Any] = []
        for node in nodes:
            found += self._item(node, role)
            if found and found[-1][0] == "exit":
                break
        return tuple(found)

    def _item(self, node: Node, role: int) -> list[Any]:
        if isinstance(node, Call):
            if node.kind != "meet" or node.group or not node.live >> role & 1:
                return []
            return [("meet", node.entry.op)]
        if isinstance(node, Enter):
            return list(self.of(node.result, role)) if node.live >> role & 1 and not node.apart else []
        if isinstance(node, Exit):
            return [("exit", node.kind)] if node.kind in _LEAVING else [("exit", "raise")]
        if isinstance(node, Branch):
            letter = node.letters[role]
            if letter == "T":
                return list(self.items(node.then, role))
            if letter == "F":
                return list(self.items(node.orelse, role))
            return _choice(self.items(node.then, role), self.items(node.orelse, role))
        if isinstance(node, Loop):
            if node.often[role] == "F":
                return []
            body = _without_end(self.items(node.body, role), ("break", "continue"))
            rest = list(self.items(node.orelse, role))
            return [("loop", body), *rest] if body else rest
        found = [*self.items(node.body, role), *self.items(node.orelse, role)]
        if found and found[-1][0] == "exit" and found[-1][1] == "raise":
            found.pop()
        leaving = [found.pop()] if found and found[-1][0] == "exit" else []
        return [*found, *self.items(node.final, role), *leaving]

    # Comparison

    def _function(self, result: Result, roles: int, chain: tuple[Step, ...]) -> None:
        key = (id(result), roles)
        if key in self._seen or (not result.meets and result is not self.root):
            return
        self._seen.add(key)
        self._nodes(result.trace, roles, chain, result, ())

    def _nodes(
        self, nodes: Sequence[Node], roles: int, chain: tuple[Step, ...], result: Result, after: Sequence[Node]
    ) -> None:
        """Compare the roles in nodes, after which ``after`` follows in the same function."""
        if not meet(tuple(nodes)) and not meet(tuple(after)):
            return
        here = [role for role in range(4) if roles >> role & 1]
        whole = {self.items((*nodes, *after), role) for role in here}
        told = len(whole) < 2
        for at, node in enumerate(nodes):
            rest = (*nodes[at + 1 :], *after)
            if isinstance(node, Branch):
                told = self._branch(node, roles, chain, result, rest, quiet=told) or told
            elif isinstance(node, Loop):
                self._loop(node, roles, chain, result)
            elif isinstance(node, Enter):
                step = (result.symbol, result.path, node.span)
                self._function(node.result, roles & node.live, (*chain, step))
            elif isinstance(node, Try):
                self._nodes(node.body, roles, chain, result, (*node.orelse, *node.final))
                for handler in node.handlers:
                    self._nodes(handler, roles, chain, result, ())
                self._nodes(node.orelse, roles, chain, result, node.final)
            elif isinstance(node, Exit):
                return

    def _branch(
        self,
        node: Branch,
        roles: int,
        chain: tuple[Step, ...],
        result: Result,
        rest: tuple[Node, ...],
        *,
        quiet: bool,
    ) -> bool:
        """Compare the two sides of a condition; return whether they part by the rank. ``quiet``: what the roles meet in
        the end is the same."""
        there = [role for role in range(4) if roles >> role & 1 and node.letters[role] in "TUD"]
        others = [role for role in range(4) if roles >> role & 1 and node.letters[role] in "FUD"]
        parted = False
        yes = [role for role in there if node.letters[role] != "D"]
        no = [role for role in others if node.letters[role] == "F"]
        only = [role for role in yes if role not in others or node.letters[role] == "U"]
        if no and only and not quiet:
            parted = self._differ(node, (node.then, only[0]), (node.orelse, no[0]), chain, result, rest)
        if not parted and node.taint & DIFFERS:
            open_for = [role for role in there if node.letters[role] == "D"]
            for role in open_for[:1]:
                self._differ(node, (node.then, role), (node.orelse, role), chain, result, rest, cause="process")
        mask = [sum(1 << role for role in side) for side in (there, others)]
        if mask[0]:
            self._nodes(node.then, mask[0], chain, result, rest)
        if mask[1]:
            self._nodes(node.orelse, mask[1], chain, result, rest)
        return parted

    def _differ(
        self,
        node: Branch,
        one: tuple[Sequence[Node], int],
        other: tuple[Sequence[Node], int],
        chain: tuple[Step, ...],
        result: Result,
        rest: tuple[Node, ...],
        cause: str = "rank",
    ) -> bool:
        leaves = [self._leaves(*side) for side in (one, other)]
        # Who leaves the function misses what the other side goes on to.
        stays = other[1] if leaves[0] else one[1]
        later = self.items(rest, stays) if any(leaves) else ()
        sides = []
        for (nodes, role), gone in zip((one, other), leaves, strict=True):
            items = self.items(nodes, role)
            sides.append(_plain(_without_end(items) if gone else (*items, *later)))
        if sides[0] == sides[1] or any(_fails(nodes) for nodes, _ in (one, other)):
            return False
        at = next((i for i, (a, b) in enumerate(zip(*sides, strict=False)) if a != b), min(map(len, sides)))
        longer = 0 if len(sides[0]) > len(sides[1]) else 1
        nodes, role = (one, other)[longer]
        inside = _located(nodes if leaves[longer] else (*nodes, *rest), role, chain)
        if not inside:
            return False
        index = min(_position(sides[longer], at), len(inside) - 1)
        call, place = inside[index]
        same = sorted(map(str, sides[0])) == sorted(map(str, sides[1]))
        cause = "order" if same and cause == "rank" else "return" if cause == "rank" and any(leaves) else cause
        self.found.append(
            Divergence(
                node,
                result.path,
                result.symbol,
                call,
                place,
                cause,
                node.taint,
                _ops(sides[0]),
                _ops(sides[1]),
                node.letters,
                self.root,
                chain,
            )
        )
        return True

    def _leaves(self, nodes: Sequence[Node], role: int) -> bool:
        items = self.items(nodes, role)
        return bool(items) and items[-1][0] == "exit"

    def _loop(self, node: Loop, roles: int, chain: tuple[Step, ...], result: Result) -> None:
        self._nodes(node.body, roles, chain, result, ())
        self._nodes(node.orelse, roles, chain, result, ())
        if node.taint & DIFFERS:
            role = next(role for role in range(4) if roles >> role & 1)
            body = _plain(_without_end(self.items(node.body, role), ("break", "continue")))
            inside = _located(node.body, role, chain)
            if body and inside:
                call, place = inside[0]
                self.found.append(
                    Divergence(
                        node,
                        result.path,
                        result.symbol,
                        call,
                        place,
                        "rounds",
                        node.taint,
                        _ops(body),
                        (),
                        node.often,
                        self.root,
                        chain,
                    )
                )


def _choice(then: Sequence_, orelse: Sequence_) -> list[Any]:
    """Return a condition that all ranks take alike, as one item; nothing if nobody meets anybody on either side."""
    if then == orelse:
        return list(then)
    return [("choice", then, orelse)] if then or orelse else []


def _without_end(items: Sequence_, kinds: tuple[str, ...] = ("return", "break", "continue")) -> Sequence_:
    """Return items without the exit at their end."""
    return items[:-1] if items and items[-1][0] == "exit" and items[-1][1] in kinds else items


def _plain(items: Sequence_) -> Sequence_:
    """Return what is met, without exits and without choices in which nobody is met."""
    found: list[Any] = []
    for item in items:
        if item[0] == "meet":
            found.append(item)
        elif item[0] == "loop" and (inside := _plain(item[1])):
            found.append(("loop", inside))
        elif item[0] == "choice":
            sides = (_plain(item[1]), _plain(item[2]))
            if sides[0] == sides[1]:
                found += sides[0]
            elif any(sides):
                found.append(("choice", *sides))
    return tuple(found)


def _ops(items: Sequence_) -> tuple[str, ...]:
    """Return the ops of items in order, the first few."""
    found: list[str] = []
    for item in items:
        if item[0] == "meet":
            found.append(item[1])
        else:
            for part in item[1:]:
                found += _ops(part)
    return tuple(found[:4])


def _position(items: Sequence_, at: int) -> int:
    """Return how many calls are in the items before one."""
    return sum(_count(item) for item in items[:at])


def _count(item: Any) -> int:
    return 1 if item[0] == "meet" else sum(_count(inner) for part in item[1:] for inner in part)


def _fails(nodes: Sequence[Node]) -> bool:
    """Whether a side ends with an exception: that is no way that a job goes on."""
    return bool(nodes) and isinstance(nodes[-1], Exit) and nodes[-1].kind == "raise"


def _located(
    nodes: Sequence[Node], role: int, chain: tuple[Step, ...], at: Span | None = None, depth: int = 0
) -> list[tuple[Call, Span]]:
    """Return the collectives that a role reaches in nodes, each with where the function of the nodes leads to it."""
    found: list[tuple[Call, Span]] = []
    for node in nodes:
        if isinstance(node, Call):
            if node.kind == "meet" and not node.group and node.live >> role & 1:
                found.append((node, at or node.span))
        elif isinstance(node, Enter):
            if node.live >> role & 1 and depth < 40:
                found += _located(node.result.trace, role, chain, at or node.span, depth + 1)
        elif isinstance(node, Branch):
            letter = node.letters[role]
            if letter != "F":
                found += _located(node.then, role, chain, at, depth)
            if letter != "T":
                found += _located(node.orelse, role, chain, at, depth)
        elif isinstance(node, Loop):
            found += _located((*node.body, *node.orelse), role, chain, at, depth)
        elif isinstance(node, Try):
            found += _located((*node.body, *node.orelse, *node.final), role, chain, at, depth)
        elif isinstance(node, Exit):
            break
    return found


def compare(root: Result) -> list[Divergence]:
    """Return where the ranks that run an entry go on to different collectives."""
    return Comparison(root).run()


__all__ = ["ROLES", "Comparison", "Divergence", "compare"]
