"""Where two roles, or two processes of one role, go on to different sequences of collectives."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from allranks.check.simulate.values import DATA, DIFFERS, NONE, RANK, Truth, Unknown, of_role
from allranks.check.traces.nodes import WAITED, Branch, Call, Enter, Exit, Loop, Node, Result, Span, Try, has_collective
from allranks.check.traces.sequences import (
    LEAVES,
    Sequence_,
    changes_files,
    choice,
    fails,
    located,
    ops_of,
    plain,
    position,
    without_end,
)
from allranks.check.traces.walk import Step

_Side: TypeAlias = tuple[Sequence[Node], int]  # of a condition, and a role that goes there
_Ops: TypeAlias = tuple[str, ...]
Assumed: TypeAlias = frozenset[tuple[str, bool]]  # settings, by how the program writes them
_SETTING = re.compile(r"(not )?([A-Za-z_][\w.]*)")
_LONGEST = 20_000  # collectives of a function, with those of the functions that it calls
_FIRST = 0b0001  # one process, which differs from none
_LEAVING = ("return", "break", "continue", "end")


class TooLong(Exception):
    """The collectives of a function, on all of its ways, are too many to compare."""

    def __init__(self, result: Result) -> None:
        super().__init__(f"its ways reach more than {_LONGEST:,} collectives")
        self.result = result


@dataclass(slots=True, eq=False)
class Divergence:
    """Processes that go on to different collectives.

    - ``branch``: the condition (or the loop) where they part; ``path`` and ``symbol``: its file and function.
    - ``call``: the first collective that not all reach. ``at``: where its function calls it or what leads to it.
    - ``cause``: ``rank`` (a condition on the rank), ``return`` (one role leaves the function, or a round of a loop),
      ``loop`` (it leaves the loop), ``process`` (a condition that each process decides for itself), ``rounds``
      (processes go round a loop a different number of times), ``order`` (the same calls in another order).
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
    chain: tuple[Step, ...] = ()
    leaves: str = ""  # how one side leaves: return, break, continue, end
    changes: bool = False  # one side changes files, too


@dataclass(slots=True)
class Comparison:
    """Compares the roles of an entry."""

    root: Result
    found: list[Divergence] = field(default_factory=list)
    _sequences: dict[tuple[int, int], Sequence_] = field(default_factory=dict)
    _sizes: dict[int, int] = field(default_factory=dict)
    _seen: set[tuple[int, int, bool]] = field(default_factory=set)

    def run(self) -> list[Divergence]:
        """Return where roles part, in order."""
        self._function(_Level(self.root, 0b1111, (), quiet=False))
        return self.found

    # Sequences

    def of(self, result: Result, role: int) -> Sequence_:
        """Return the collectives of a role in a function."""
        key = (id(result), role)
        if not result.has_collective:
            return ()
        if key not in self._sequences:
            self._sequences[key] = ()
            # A function that raises is no way that a job goes on.
            self._sequences[key] = without_end(self.items(result.trace, role), (*LEAVES, "raise"))
            if sum(map(self._size, self._sequences[key])) > _LONGEST:
                raise TooLong(result)
        return self._sequences[key]

    def _size(self, item: Any) -> int:
        """Return how many collectives are in an item of a sequence that is kept: each is counted once."""
        if item[0] != "collective" and id(item) not in self._sizes:
            self._sizes[id(item)] = sum(self._size(inner) for part in item[1:] for inner in part)
        return self._sizes.get(id(item), 1)

    def items(self, nodes: Sequence[Node], role: int, assumed: Assumed = frozenset()) -> Sequence_:
        """Return the collectives of a role in nodes, up to where it leaves them. ``assumed``: settings whose truth is
        known there."""
        found: list[Any] = []
        for node in nodes:
            found += self._item(node, role, assumed)
            if found and found[-1][0] == "exit":
                break
        return tuple(found)

    def _item(self, node: Node, role: int, assumed: Assumed) -> list[Any]:
        if isinstance(node, Call):
            if node.kind not in WAITED or node.group or not node.live >> role & 1:
                return []
            return [("collective", node.entry.op)]
        if isinstance(node, Enter):
            return list(self.of(node.result, role)) if node.live >> role & 1 else []
        if isinstance(node, Exit):
            return [("exit", node.kind)] if node.kind in _LEAVING else [("exit", "raise")]
        if isinstance(node, Branch):
            letter = _assumed_letter(node, role, assumed)
            if letter == "T":
                return list(self.items(node.then, role, assumed))
            if letter == "F":
                return list(self.items(node.orelse, role, assumed))
            return choice(self.items(node.then, role, assumed), self.items(node.orelse, role, assumed))
        if isinstance(node, Loop):
            if node.often[role] == "F":
                return []
            body = without_end(self.items(node.body, role, assumed), ("break", "continue"))
            rest = list(self.items(node.orelse, role, assumed))
            return [("loop", body), *rest] if body else rest
        found = [*self.items(node.body, role, assumed), *self.items(node.orelse, role, assumed)]
        if found and found[-1][0] == "exit" and found[-1][1] == "raise":
            found.pop()
        leaving = [found.pop()] if found and found[-1][0] == "exit" else []
        return [*found, *self.items(node.final, role, assumed), *leaving]

    # Comparison

    def _function(self, level: _Level) -> None:
        key = (id(level.result), level.roles, level.quiet)
        if key in self._seen or (not level.result.has_collective and level.result is not self.root):
            return
        self._seen.add(key)
        self._nodes(level.result.trace, level, ())

    def _nodes(self, nodes: Sequence[Node], level: _Level, after: Sequence[Node]) -> None:
        """Compare the roles in nodes, after which ``after`` follows in the same function."""
        if not has_collective(tuple(nodes)) and not has_collective(tuple(after)):
            return
        whole = {self.items((*nodes, *after), role, level.assumed) for role in level.each}
        level = replace(level, quiet=level.quiet or len(whole) < 2)
        picking = [node for node in nodes if isinstance(node, Branch) and _is_which(node)]  # two of them: in turns
        for at, node in enumerate(nodes):
            rest = (*nodes[at + 1 :], *after)
            if isinstance(node, Branch):
                told = self._branch(node, level, rest, only=len(picking) == 1)
                level = replace(level, quiet=level.quiet or told)
            elif isinstance(node, Loop):
                self._loop(node, level, rest)
            elif isinstance(node, Enter):
                chain = (*level.chain, (level.result.symbol, level.result.path, node.span))
                beyond = (*rest, *level.again, *level.outer, *level.beyond)
                self._function(_Level(node.result, level.roles & node.live, chain, level.quiet, beyond=beyond))
            elif isinstance(node, Try):
                self._failure(node, level, rest)
                self._nodes(node.body, level, (*node.orelse, *node.final, *rest))
                for handler in node.handlers:
                    self._nodes(handler, level, (*node.final, *rest))
                self._nodes(node.orelse, level, (*node.final, *rest))
            elif isinstance(node, Exit):
                return

    def _failure(self, node: Try, level: _Level, rest: tuple[Node, ...]) -> None:
        """Note a step of training that one process leaves by an exception, which it swallows, and goes on."""
        if node.swallows is None or not level.again:
            return
        missed = (*node.body, *(rest if self._leaves(node.handlers[0], level.each[0]) else ()))
        steps = [one for one in located(missed, level.each[0]) if one[0].entry.op.endswith((" backward", "backward"))]
        if steps:
            span, text = node.swallows
            handler = Branch("DDDD", DATA, span, text, (), ())
            found = self._note(handler, level, steps[0], "process", ((), (steps[0][0].entry.op,)))
            found.leaves = "swallowing its exception"

    def _branch(self, node: Branch, level: _Level, rest: tuple[Node, ...], *, only: bool) -> bool:
        """Compare the two sides of a condition; return whether one leaves the function because of the rank. ``only``:
        it is the only condition there that picks ranks."""
        there = [role for role in level.each if node.letters[role] in "TUD"]
        others = [role for role in level.each if node.letters[role] in "FUD"]
        parted = leaves = False
        if there and others and not level.quiet:
            one = min(there, key=lambda role: "TUD".index(node.letters[role]))
            other = min(others, key=lambda role: "FUD".index(node.letters[role]))
            if node.letters[one] != node.letters[other]:
                parted = self._differ(node, (node.then, one), (node.orelse, other), level, rest)
                leaves = parted and self.found[-1].leaves != ""
        either = [role for role in there if node.letters[role] == "D"]
        either = [] if either == [0] else either  # one process: what it decides, it decides for all, or is alone
        own = node.taint & DIFFERS & ~RANK
        sure = own or (_is_which(node) and (only or self._leaves(node.then, level.each[0]) != ""))
        if either and not parted and sure:
            cause = "process" if own else "rank"  # ranks of one role differ, too
            self._differ(node, (node.then, either[0]), (node.orelse, either[0]), level, rest, cause=cause)
        for roles, side in ((there, node.then), (others, node.orelse)):
            if roles:
                inside = replace(level, roles=sum(1 << role for role in roles), quiet=level.quiet or parted)
                inside.assumed |= _assumes(node, side is node.then)
                self._nodes(side, inside, rest)
        return leaves

    def _differ(
        self, node: Branch, one: _Side, other: _Side, level: _Level, rest: tuple[Node, ...], cause: str = "rank"
    ) -> bool:
        """Compare the collectives of a role on one side with those of a role on the other; note where they differ."""
        if any(fails(nodes) and not plain(self.items(nodes, role)) for nodes, role in (one, other)):
            return False
        leaves, ways = self._ways(one, other, level)
        missed = self._missed(leaves, rest, level)
        later = self.items(missed, other[1] if leaves[0] else one[1], level.assumed)
        sides = [plain(way if gone else (*way, *later)) for way, gone in zip(ways, leaves, strict=True)]
        if sides[0] == sides[1]:
            return False
        at = next((i for i, (a, b) in enumerate(zip(*sides, strict=False)) if a != b), min(map(len, sides)))
        longer = 0 if len(sides[0]) > len(sides[1]) else 1
        nodes, role = (one, other)[longer]
        inside = located(nodes if leaves[longer] else (*nodes, *missed), role)
        if not inside:
            return False
        same = sorted(map(str, sides[0])) == sorted(map(str, sides[1]))
        if cause == "rank":
            leaves_by = {"": "rank", "break": "loop"}.get(leaves[1 - longer], "return")
            cause = "order" if same else leaves_by
        missing = inside[min(position(sides[longer], at), len(inside) - 1) :]
        made = {op for kind, op, *_ in sides[1 - longer] if kind == "collective"}
        whole = leaves[1 - longer] == "return"  # all that follows is left
        there = (one for one in missing if (whole or one[1] == missing[0][1]) and one[0].entry.op not in made)
        first = next((one for one in there if not one[0].entry.hidden), missing[0])  # whose name says that it waits
        found = self._note(node, level, first, cause, (ops_of(sides[0][at:]), ops_of(sides[1][at:])))
        found.leaves = leaves[1 - longer]
        found.changes = any(changes_files(nodes) for nodes in (node.then, node.orelse, missed))
        return True

    def _ways(self, one: _Side, other: _Side, level: _Level) -> tuple[list[str], list[Sequence_]]:
        """Return how two sides leave, and what they call until then. Where both go on to the same calls, and one may
        leave, it does."""
        leaves = [self._leaves(*side) for side in (one, other)]
        ways = [self.items(*side, level.assumed) for side in (one, other)]
        if not any(leaves) and plain(ways[0]) == plain(ways[1]):
            may = [self._may_leave(*side) for side in (one, other)]
            if (may[0][0] == "") != (may[1][0] == ""):
                leaves = [kind for kind, _ in may]
                ways = [until if kind else way for (kind, until), way in zip(may, ways, strict=True)]
        return leaves, [without_end(way) if kind else way for kind, way in zip(leaves, ways, strict=True)]

    def _may_leave(self, nodes: Sequence[Node], role: int) -> tuple[str, Sequence_]:
        """Return how a role may leave nodes where a condition that is alike for all decides, and what it calls until
        then."""
        for at, node in enumerate(nodes):
            for side in (node.then, node.orelse) if isinstance(node, Branch) and node.letters[role] == "U" else ():
                if (kind := self._leaves(side, role)) in LEAVES:
                    return kind, (*self.items(nodes[:at], role), *self.items(side, role))
        return "", ()

    def _note(
        self, node: Branch | Loop, level: _Level, first: tuple[Call, Span], cause: str, ops: tuple[_Ops, _Ops]
    ) -> Divergence:
        who = node.letters if isinstance(node, Branch) else node.often
        found = Divergence(
            node, level.result.path, level.result.symbol, *first, cause, node.taint, *ops, who, self.root
        )
        found.chain = level.chain
        self.found.append(found)
        return found

    def _leaves(self, nodes: Sequence[Node], role: int) -> str:
        """Return how a role leaves nodes (``return``, ``break``, ...); empty if it goes on behind them."""
        items = self.items(nodes, role)
        return items[-1][1] if items and items[-1][0] == "exit" else ""

    @staticmethod
    def _missed(leaves: Sequence[str], rest: tuple[Node, ...], level: _Level) -> tuple[Node, ...]:
        """Return what a side that leaves does not go on to, and the other does."""
        kinds = {kind for kind in leaves if kind}
        if not kinds:
            return ()
        if kinds == {"continue"}:
            return rest
        if "end" in kinds:
            return (*rest, *level.again, *level.outer, *level.beyond)
        return (*rest, *level.again) if kinds <= {"break", "continue"} else (*rest, *level.again, *level.outer)

    def _loop(self, node: Loop, level: _Level, rest: tuple[Node, ...]) -> None:
        inside = replace(level, again=node.body, outer=(*rest, *level.again, *level.outer))
        self._nodes(node.body, inside, ())
        self._nodes(node.orelse, level, ())
        parts = {node.often[role] for role in level.each}
        if "F" in parts and len(parts) > 1 and not level.quiet:
            role = next(role for role in level.each if node.often[role] != "F")
            calls = located(node.body, role)
            if calls:
                ops = ops_of(plain(without_end(self.items(node.body, role), ("break", "continue"))))
                self._note(node, level, calls[0], "rank", (ops, ()))
        elif node.taint & DIFFERS and level.roles != _FIRST:
            body = plain(without_end(self.items(node.body, level.each[0]), ("break", "continue")))
            calls = located(node.body, level.each[0])
            if body and calls:
                is_alike = not node.counted or node.taint & DATA  # batches mostly have one size
                cause = "rounds" if is_alike else "rank" if node.taint & RANK else "process"
                self._note(node, level, calls[0], cause, (ops_of(body), ()))


@dataclass(slots=True)
class _Level:
    """A function that some roles run, as far as it is compared.

    - ``quiet``: their collectives in the end, here or where the function is called, is the same.
    - ``beyond``: what follows in the functions that call it.
    - ``assumed``: settings whose truth is known here, as a condition around asked for them.
    - ``again``: the body of the loop around. ``outer``: what follows after that loop.
    """

    result: Result
    roles: int
    chain: tuple[Step, ...]
    quiet: bool
    again: tuple[Node, ...] = ()
    outer: tuple[Node, ...] = ()
    beyond: tuple[Node, ...] = ()
    assumed: Assumed = frozenset()

    @property
    def each(self) -> list[int]:
        return [role for role in range(4) if self.roles >> role & 1]


def _assumes(node: Branch, holds: bool) -> Assumed:
    """Return what a side of a condition says of a setting that is the same on all ranks."""
    match = _SETTING.fullmatch(node.text) if set(node.letters) == {"U"} else None
    return frozenset({(match[2], holds != (match[1] is not None))}) if match is not None else frozenset()


def _assumed_letter(node: Branch, role: int, assumed: Assumed) -> str:
    """Return the truth of a condition for a role, where some settings are known."""
    said = _assumes(node, True) if assumed else frozenset()
    for name, value in said:
        if (name, value) in assumed or (name, not value) in assumed:
            return "T" if (name, value) in assumed else "F"
    return node.letters[role]


def _is_which(node: Branch) -> bool:
    """Whether a condition picks ranks: ``turn == rank``, ``rank in members``, ``counted_by_rank_0 > 3``."""
    every = (of_role(node.test or NONE, role) for role in range(4))
    return any(isinstance(one, Unknown) and one.kind == "which" for one in every)


def compare(root: Result) -> list[Divergence]:
    """Return where the ranks that run an entry go on to different collectives. Raises TooLong."""
    return Comparison(root).run()
