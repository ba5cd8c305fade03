"""Sequences of collectives, compared: where do processes that must meet go on to different meetings?

The trace of a function becomes, for one role, a sequence of items: the op of a meeting; ``("if", condition, then,
otherwise)`` where all ranks choose alike and the sides differ; ``("loop", items)``; ``("jump", kind)`` out of a loop
that meets; ``("yield",)``. What comes after an early exit is left out, so that two equal sequences
mean: these two meet in the same places, whatever guards are on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from allranks.check.state import Called, Result, Span, Trace, TraceNode
from allranks.check.truth import ROLES, in_words
from allranks.check.values import PROCESS, RANKS, STATE

Items: TypeAlias = tuple[Any, ...]
LONGEST = 300
_LEFT_OUT = ((), ("sub",), ("sub", "hidden"))


class Parting(NamedTuple):
    """A branch of ``result`` after which processes go different ways. ``sides``: (who, what they meet in)."""

    cause: str
    result: Result
    guard: Span
    condition: str
    meeting: Span
    collective: str
    op: str
    sides: tuple[tuple[str, tuple[str, ...]], ...]


class _Ahead(NamedTuple):
    """What follows a stretch of a trace: the items of each role, whether it is in a ``loop``, and whether the function
    as a whole is ``level``: its roles meet alike, however its branches look."""

    rest: dict[int, Items]
    loop: bool
    level: bool


@dataclass(slots=True)
class Comparison:
    """Compares roles. Sequences of functions are kept: each is asked for many times."""

    _known: dict[tuple[int, int, int], Items] = field(default_factory=dict)

    def function(self, result: Result, role: int, drop: int) -> Items:
        """Return the items of a whole function; ``drop`` leaves meetings of sub-groups (1), and hidden ones
        (2), out."""
        key = (id(result), role, drop)
        if key not in self._known:
            self._known[key] = ()  # a circle of calls adds nothing
            items = self.items(result.trace, role, drop, (), False)
            self._known[key] = items if len(items) <= LONGEST else (("many", hash(items)),)
        return self._known[key]

    def items(self, trace: Trace, role: int, drop: int, rest: Items, loop: bool) -> Items:
        for node in reversed(trace):
            rest = self.before(node, role, drop, rest, loop)
        return rest

    def before(self, node: TraceNode, role: int, drop: int, rest: Items, loop: bool) -> Items:
        """Return the items of ``node`` and what follows it."""
        tag = node[0]
        if tag == "meet":
            return rest if drop and node[2] in _LEFT_OUT[drop] else (node[1], *rest)
        if tag == "call":
            return self.function(node[1].result, role, drop) + rest
        if tag == "exit":
            return (("jump", node[1]),) if loop and node[1] != "raise" else ()
        if tag == "branch":
            return self._branch(node, role, drop, rest, loop)
        if tag == "loop":
            inside = self.items(node[3], role, drop, (), True)
            leaves = rest and _holds(inside, ("jump", "return"))
            return (("loop", inside), *rest) if _meets(inside) or leaves else rest
        if tag == "try":
            handlers = tuple(self.items(handler, role, drop, (), loop) for handler in node[2])
            rest = (("except", *handlers), *rest) if any(map(_meets, handlers)) else rest
            return self.items(node[1], role, drop, rest, loop)
        if tag == "around":
            body = self.items(node[2], role, drop, (), loop)
            around = self.function(node[1].result, role, drop)
            at = around.index(("yield",)) if ("yield",) in around else len(around)
            return (*around[:at], *body, *around[at + 1 :], *rest)
        return (("yield",), *rest)

    def _branch(self, node: TraceNode, role: int, drop: int, rest: Items, loop: bool) -> Items:
        _, truth, _, then, orelse, _, condition = node
        letter = "W" if "W" in truth else truth[role]
        if letter in "TF":
            return self.items(then if letter == "T" else orelse, role, drop, rest, loop)
        if _raises(then) or _raises(orelse):  # the job ends there, in one way or another
            return self.items(orelse if _raises(then) else then, role, drop, rest, loop)
        if not _exits(then) and not _exits(orelse):
            one, two = (self.items(side, role, drop, (), loop) for side in (then, orelse))
            return one + rest if one == two else (("if", condition, one, two), *rest)
        one, two = (self.items(side, role, drop, rest, loop) for side in (then, orelse))
        return one if one == two else (("if", condition, one, two),)

    def partings(self, result: Result, alive: int) -> Iterator[Parting | tuple[Called, int]]:
        """Yield where the ``alive`` roles part in this function, and the calls on the way with who makes them."""
        level = len({_plain(self.function(result, role, 0)) for role in _roles(alive)}) == 1
        yield from self._walk(result, result.trace, alive, _Ahead(dict.fromkeys(range(4), ()), False, level))

    def _walk(self, result: Result, trace: Trace, alive: int, ahead: _Ahead) -> Iterator[Parting | tuple[Called, int]]:
        settled = 0  # up to here, branches on the rank make up for each other
        for at, node in enumerate(trace):
            tag, after = node[0], trace[at + 1 :]
            if tag == "call":
                if at >= settled and not self._balanced(node[1], alive, after, ahead):
                    yield node[1], alive
            elif tag == "branch":
                here = ahead if at >= settled else ahead._replace(level=True)
                settled = max(settled, self._balance(trace, at, alive) if at >= settled else 0)
                here = here if at >= settled else ahead._replace(level=True)
                found = self._parting(result, node, alive, after, here)
                if found is not None:
                    yield found
                else:
                    yield from self._sides(result, node, alive, after, here)
                alive = self._left(node, alive)
            elif tag == "loop":
                uneven = self._uneven(result, node)
                if uneven is not None:
                    yield uneven
                    continue
                inside = _Ahead(dict.fromkeys(range(4), ()), True, ahead.level)
                yield from self._walk(result, node[3], alive, inside)
            elif tag == "try":
                for part in (node[1], *node[2]):
                    yield from self._walk(result, part, alive, self._after(after, alive, ahead))
            elif tag == "around":
                yield from self._walk(result, node[2], alive, self._after(after, alive, ahead))
            elif tag == "exit":
                return

    def _uneven(self, result: Result, node: TraceNode) -> Parting | None:
        """A loop in which all meet, and which each process goes round as often as it finds things for itself."""
        _, _, taint, body, span = node
        if not taint & (RANKS | PROCESS) or taint & STATE or not span[0]:
            return None
        if not any(_meets(self.items(body, role, 2, (), True)) for role in range(4)):
            return None
        meeting = _first_meeting(body)
        return None if meeting is None else Parting("loop", result, span, "", *meeting, ())

    def _balance(self, trace: Trace, at: int, alive: int) -> int:
        """Return where a stretch ends that begins with a branch on the rank and is the same for all; 0 if nowhere."""
        if _exits(trace[at : at + 1]):
            return 0
        for end in range(at + 1, len(trace) + 1):
            stretch = trace[at:end]
            if stretch[-1][0] in ("branch", "call", "exit"):
                if _exits(stretch[-1:]):
                    return 0
                if len({_plain(self.items(stretch, role, 0, (), False)) for role in _roles(alive)}) == 1:
                    return end
        return 0

    def _sides(
        self, result: Result, node: TraceNode, alive: int, after: Trace, ahead: _Ahead
    ) -> Iterator[Parting | tuple[Called, int]]:
        later = self._after(after, alive, ahead)
        for side, other in ((node[3], "F"), (node[4], "T")):
            inside = sum(1 << role for role in _roles(alive) if node[1][role] != other)
            if side and inside:
                yield from self._walk(result, side, inside, later)

    def _after(self, after: Trace, alive: int, ahead: _Ahead) -> _Ahead:
        rest = {role: self.items(after, role, 0, ahead.rest[role], ahead.loop) for role in _roles(alive)}
        return ahead._replace(rest=rest)

    def _balanced(self, called: Called, alive: int, after: Trace, ahead: _Ahead) -> bool:
        """Roles differ in the callee, and what its caller does afterwards makes up for it."""
        own = {_plain(self.function(called.result, role, 0)) for role in _roles(alive)}
        if len(own) == 1:
            return False
        later = self._after(after, alive, ahead).rest
        return ahead.level or len({self.function(called.result, role, 0) + later[role] for role in later}) == 1

    def _left(self, node: TraceNode, alive: int) -> int:
        gone = 0
        for role in _roles(alive):
            side = node[3] if node[1][role] == "T" else node[4] if node[1][role] == "F" else ()
            gone |= 1 << role if side and side[-1][0] == "exit" else 0
        return alive & ~gone

    def _parting(self, result: Result, node: TraceNode, alive: int, after: Trace, ahead: _Ahead) -> Parting | None:
        _, truth, _, then, orelse, _, condition = node
        letters = {truth[role] for role in _roles(alive)}
        if "W" in truth or _raises(then) or _raises(orelse) or not (letters & set("DP") or len(letters) > 1):
            return None
        if ahead.level and not letters & set("DP"):
            return None
        drop = 2 if letters & set("DP") or truth[0] == truth[2] else 1 if truth[0] == truth[1] else 0
        ways: dict[str, Items] = {}
        for role in _roles(alive):
            later = self.items(after, role, drop, () if drop else ahead.rest[role], ahead.loop)
            if truth[role] in "DP":
                ways["where it holds"] = self.items(then, role, drop, later, ahead.loop)
                ways["elsewhere"] = self.items(orelse, role, drop, later, ahead.loop)
                break
            ways[ROLES[role]] = self.before(node, role, drop, later, ahead.loop)
        if len({_plain(items) for items in ways.values()}) < 2:
            return None
        flags = _atoms(condition)
        own = (self.items(side, role, drop, (), ahead.loop) for side in (then, orelse) for role in _roles(alive))
        later_on = (self.items(after, role, drop, ahead.rest[role], ahead.loop) for role in _roles(alive))
        if "U" in letters and all(_hangs_on(items, flags) for items in (*own, *later_on)):
            return None  # the same flag that lets some go decides whether there is anything to meet for
        return self._described(result, node, ways, after, "P" in letters and "D" not in letters)

    def _described(
        self, result: Result, node: TraceNode, ways: dict[str, Items], after: Trace, by_process: bool
    ) -> Parting | None:
        _, truth, taint, then, orelse, span, condition = node
        flat = {who: tuple(_flat(items)) for who, items in ways.items()}
        sides: dict[tuple[str, ...], list[str]] = {}
        for who, ops in flat.items():
            sides.setdefault(ops, []).append(who)
        same = len({tuple(sorted(ops)) for ops in sides}) == 1 and len(sides) > 1
        inside = _first_meeting((*then, *orelse))
        meeting = inside or _first_meeting(after)
        if meeting is None:
            return None
        early = inside is None
        state = taint & STATE and set(truth) & set("UD")
        cause = "process" if by_process else "state" if state else "return" if early else "order" if same else "rank"
        described = tuple((in_words(who), ops[:8]) for ops, who in sides.items())
        return Parting(cause, result, span, condition, *meeting, described)


def _roles(mask: int) -> list[int]:
    return [role for role in range(4) if mask >> role & 1]


def _atoms(condition: str) -> frozenset[str]:
    """Return what a condition is made of, as text."""
    parts = condition.replace(" or ", " and ").split(" and ")
    return frozenset(part.strip().removeprefix("not ").strip() for part in parts)


def _hangs_on(items: Items, flags: frozenset[str]) -> bool:
    """Whether every meeting hangs on a condition that has one of ``flags``."""
    for item in items:
        if isinstance(item, str) or item[0] == "many":
            return False
        if item[0] == "if":
            if not (_atoms(item[1]) & flags) and not (_hangs_on(item[2], flags) and _hangs_on(item[3], flags)):
                return False
        elif item[0] in ("loop", "except") and not all(_hangs_on(part, flags) for part in item[1:]):
            return False
    return True


def _plain(items: Items) -> Items:
    """Leave out where a context lets its body run: what the body meets is compared where the context is used."""
    return tuple(item for item in items if item != ("yield",))


def _raises(trace: Trace) -> bool:
    return bool(trace) and trace[-1] == ("exit", "raise")


def _exits(trace: Trace) -> bool:
    """Whether a way through it leaves the function or a loop around it."""
    for node in trace:
        if node[0] == "exit":
            return True
        if node[0] == "branch" and (_exits(node[3]) or _exits(node[4])):
            return True
        if node[0] == "try" and (_exits(node[1]) or any(map(_exits, node[2]))):
            return True
    return False


def _meets(items: Items) -> bool:
    return any(
        isinstance(item, str) or (item[0] not in ("jump", "yield") and (item[0] == "many" or _meets(item[1:])))
        if not (isinstance(item, tuple) and item and item[0] == "if")
        else _meets(item[2]) or _meets(item[3])
        for item in items
    )


def _holds(items: Items, wanted: Items) -> bool:
    return any(item == wanted or (isinstance(item, tuple) and _holds(item, wanted)) for item in items)


def _flat(items: Items) -> Iterator[str]:
    for item in items:
        if isinstance(item, str):
            yield item
        elif item[0] == "if":
            yield from _flat(item[2])
            yield from _flat(item[3])
        elif item[0] in ("loop", "except"):
            for part in item[1:]:
                yield from _flat(part)


def _first_meeting(trace: Trace) -> tuple[Span, str, str] | None:
    """Return the first meeting on a trace: where the function sees it, what it is called in the end, and its op."""
    for node in trace:
        found = None
        if node[0] == "meet":
            found = node[3], node[4], node[1]
        elif node[0] in ("call", "around"):
            inner = _first_meeting(node[1].result.trace)
            found = (node[1].span, *inner[1:]) if inner is not None else None
            if node[0] == "around" and found is None:
                found = _first_meeting(node[2])
        elif node[0] == "branch":
            found = _first_meeting((*node[3], *node[4]))
        elif node[0] == "loop":
            found = _first_meeting(node[3])
        elif node[0] == "try":
            found = _first_meeting((*node[1], *(n for handler in node[2] for n in handler)))
        if found is not None:
            return found
    return None
