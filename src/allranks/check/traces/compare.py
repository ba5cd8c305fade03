"""Where two roles, or two processes of one role, go on to different sequences of collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from allranks.check.simulate.values import DIFFERS, RANK, Truth
from allranks.check.traces.nodes import Branch, Call, Enter, Exit, Loop, Node, Result, Span, Try, has_collective
from allranks.check.traces.walk import Step

# The collectives of one role: ("collective", op) · ("choice", then, orelse) · ("loop", items) · ("exit", kind).
Sequence_: TypeAlias = tuple[Any, ...]
_CHANGES = ("file", "checkpoint", "mkdir", "folder", "moved", "delete", "download", "append")
_DEEPEST = 4  # calls down, in which a change of files is looked for
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
    chain: tuple[Step, ...] = ()
    leaves: str = ""  # how one side leaves: return, break, continue, end
    changes: bool = False  # one side changes files, too


@dataclass(slots=True)
class Comparison:
    """Compares the roles of an entry."""

    root: Result
    found: list[Divergence] = field(default_factory=list)
    _sequences: dict[tuple[int, int], Sequence_] = field(default_factory=dict)
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
            self._sequences[key] = _without_end(self.items(result.trace, role))
        return self._sequences[key]

    def items(self, nodes: Sequence[Node], role: int) -> Sequence_:
        """Return the collectives of a role in nodes, up to where it leaves them."""
        found: list[Any] = []
        for node in nodes:
            found += self._item(node, role)
            if found and found[-1][0] == "exit":
                break
        return tuple(found)

    def _item(self, node: Node, role: int) -> list[Any]:
        if isinstance(node, Call):
            if node.kind != "collective" or node.group or not node.live >> role & 1:
                return []
            return [("collective", node.entry.op)]
        if isinstance(node, Enter):
            return list(self.of(node.result, role)) if node.live >> role & 1 else []
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
        whole = {self.items((*nodes, *after), role) for role in level.each}
        level = replace(level, quiet=level.quiet or len(whole) < 2)
        for at, node in enumerate(nodes):
            rest = (*nodes[at + 1 :], *after)
            if isinstance(node, Branch):
                told = self._branch(node, level, rest)
                level = replace(level, quiet=level.quiet or told)
            elif isinstance(node, Loop):
                self._loop(node, level, rest)
            elif isinstance(node, Enter):
                chain = (*level.chain, (level.result.symbol, level.result.path, node.span))
                self._function(_Level(node.result, level.roles & node.live, chain, level.quiet))
            elif isinstance(node, Try):
                self._nodes(node.body, level, (*node.orelse, *node.final, *rest))
                for handler in node.handlers:
                    self._nodes(handler, level, (*node.final, *rest))
                self._nodes(node.orelse, level, (*node.final, *rest))
            elif isinstance(node, Exit):
                return

    def _branch(self, node: Branch, level: _Level, rest: tuple[Node, ...]) -> bool:
        """Compare the two sides of a condition; return whether they part by the rank."""
        there = [role for role in level.each if node.letters[role] in "TUD"]
        others = [role for role in level.each if node.letters[role] in "FUD"]
        parted = False
        if there and others and not level.quiet:
            one = min(there, key=lambda role: "TUD".index(node.letters[role]))
            other = min(others, key=lambda role: "FUD".index(node.letters[role]))
            if node.letters[one] != node.letters[other]:
                parted = self._differ(node, (node.then, one), (node.orelse, other), level, rest)
        either = [role for role in there if node.letters[role] == "D"]
        if either and not parted and node.taint & DIFFERS & ~RANK:
            self._differ(node, (node.then, either[0]), (node.orelse, either[0]), level, rest, cause="process")
        for roles, side in ((there, node.then), (others, node.orelse)):
            if roles:
                inside = replace(level, roles=sum(1 << role for role in roles), quiet=level.quiet or parted)
                self._nodes(side, inside, rest)
        return parted

    def _differ(
        self,
        node: Branch,
        one: tuple[Sequence[Node], int],
        other: tuple[Sequence[Node], int],
        level: _Level,
        rest: tuple[Node, ...],
        cause: str = "rank",
    ) -> bool:
        """Compare the collectives of a role on one side with those of a role on the other; note where they differ."""
        if any(_fails(nodes) for nodes, _ in (one, other)):
            return False
        leaves = [self._leaves(*side) for side in (one, other)]
        missed = self._missed(leaves, rest, level)
        later = self.items(missed, other[1] if leaves[0] else one[1])
        sides = []
        for (nodes, role), gone in zip((one, other), leaves, strict=True):
            items = self.items(nodes, role)
            sides.append(_plain(_without_end(items) if gone else (*items, *later)))
        if sides[0] == sides[1] or (cause == "process" and "end" in leaves):  # whoever ends the process ends the job
            return False
        at = next((i for i, (a, b) in enumerate(zip(*sides, strict=False)) if a != b), min(map(len, sides)))
        longer = 0 if len(sides[0]) > len(sides[1]) else 1
        nodes, role = (one, other)[longer]
        inside = _located(nodes if leaves[longer] else (*nodes, *missed), role)
        if not inside:
            return False
        same = sorted(map(str, sides[0])) == sorted(map(str, sides[1]))
        if cause == "rank":
            cause = "order" if same else "return" if leaves[1 - longer] else "rank"
        first = inside[min(_position(sides[longer], at), len(inside) - 1)]
        found = self._note(node, level, first, cause, (_ops(sides[0]), _ops(sides[1])))
        found.leaves = leaves[1 - longer]
        found.changes = any(_changes_files(nodes) for nodes in (node.then, node.orelse, missed))
        return True

    def _note(
        self,
        node: Branch | Loop,
        level: _Level,
        first: tuple[Call, Span],
        cause: str,
        ops: tuple[tuple[str, ...], tuple[str, ...]],
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
        return (*rest, *level.again) if kinds <= {"break", "continue"} else (*rest, *level.again, *level.outer)

    def _loop(self, node: Loop, level: _Level, rest: tuple[Node, ...]) -> None:
        inside = replace(level, again=node.body, outer=(*rest, *level.again, *level.outer))
        self._nodes(node.body, inside, ())
        self._nodes(node.orelse, level, ())
        if node.taint & DIFFERS:
            body = _plain(_without_end(self.items(node.body, level.each[0]), ("break", "continue")))
            calls = _located(node.body, level.each[0])
            if body and calls:
                self._note(node, level, calls[0], "rounds", (_ops(body), ()))


@dataclass(frozen=True, slots=True)
class _Level:
    """A function that some roles run, as far as it is compared.

    - ``quiet``: their collectives in the end, here or where the function is called, is the same.
    - ``again``: the body of the loop around. ``outer``: what follows after that loop.
    """

    result: Result
    roles: int
    chain: tuple[Step, ...]
    quiet: bool
    again: tuple[Node, ...] = ()
    outer: tuple[Node, ...] = ()

    @property
    def each(self) -> list[int]:
        return [role for role in range(4) if self.roles >> role & 1]


def _choice(then: Sequence_, orelse: Sequence_) -> list[Any]:
    """Return a condition that all ranks take alike, as one item; nothing if neither side has a collective."""
    if then == orelse:
        return list(then)
    return [("choice", then, orelse)] if then or orelse else []


def _without_end(items: Sequence_, kinds: tuple[str, ...] = ("return", "break", "continue")) -> Sequence_:
    """Return items without the exit at their end."""
    return items[:-1] if items and items[-1][0] == "exit" and items[-1][1] in kinds else items


def _plain(items: Sequence_) -> Sequence_:
    """Return the collectives, without exits and without choices that have none."""
    found: list[Any] = []
    for item in items:
        if item[0] == "collective":
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
        if item[0] == "collective":
            found.append(item[1])
        else:
            for part in item[1:]:
                found += _ops(part)
    return tuple(found[:4])


def _position(items: Sequence_, at: int) -> int:
    """Return how many calls are in the items before one."""
    return sum(_count(item) for item in items[:at])


def _count(item: Any) -> int:
    return 1 if item[0] == "collective" else sum(_count(inner) for part in item[1:] for inner in part)


def _changes_files(nodes: Sequence[Node], depth: int = 0) -> bool:
    """Whether some role makes, writes or deletes files in nodes."""
    return any(_changes_file(node, depth) for node in nodes)


def _changes_file(node: Node, depth: int) -> bool:
    if isinstance(node, Call):
        return node.kind in _CHANGES
    if isinstance(node, Enter):
        return depth < _DEEPEST and _changes_files(node.result.trace, depth + 1)
    if isinstance(node, Branch):
        return _changes_files((*node.then, *node.orelse), depth)
    return isinstance(node, Loop | Try) and _changes_files((*node.body, *node.orelse), depth)


def _fails(nodes: Sequence[Node]) -> bool:
    """Whether a side ends with an exception: that is no way that a job goes on."""
    return bool(nodes) and isinstance(nodes[-1], Exit) and nodes[-1].kind == "raise"


def _located(nodes: Sequence[Node], role: int, at: Span | None = None, depth: int = 0) -> list[tuple[Call, Span]]:
    """Return the collectives that a role reaches in nodes, each with where the function of the nodes leads to it."""
    found: list[tuple[Call, Span]] = []
    for node in nodes:
        if isinstance(node, Call):
            if node.kind == "collective" and not node.group and node.live >> role & 1:
                found.append((node, at or node.span))
        elif isinstance(node, Enter):
            if node.live >> role & 1 and depth < 40:
                found += _located(node.result.trace, role, at or node.span, depth + 1)
        elif isinstance(node, Branch):
            letter = node.letters[role]
            if letter != "F":
                found += _located(node.then, role, at, depth)
            if letter != "T":
                found += _located(node.orelse, role, at, depth)
        elif isinstance(node, Loop):
            found += _located((*node.body, *node.orelse), role, at, depth)
        elif isinstance(node, Try):
            found += _located((*node.body, *node.orelse, *node.final), role, at, depth)
        elif isinstance(node, Exit):
            break
    return found


def compare(root: Result) -> list[Divergence]:
    """Return where the ranks that run an entry go on to different collectives."""
    return Comparison(root).run()
