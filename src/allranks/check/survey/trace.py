"""Sequences of collectives, compared: where do processes that must meet go on to different meetings?

The trace of a function becomes, for one role, a sequence of items: the op of a meeting; ``("if", condition, then,
otherwise)`` where all ranks choose alike and the sides differ; ``("loop", items)``; ``("jump", kind)`` out of a loop
that meets; ``("yield",)``. What comes after an early exit is left out, so that two equal sequences
mean: these two meet in the same places, whatever guards are on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from allranks.check.interpret.state import Called, Result, Span, Trace, TraceNode
from allranks.check.interpret.truth import BY_RANK, EVERY, ROLES, TRUE, UNKNOWN, in_words
from allranks.check.interpret.values import ALONE, CLOCK, RANKS, STATE
from allranks.check.survey.ahead import Ahead, Look
from allranks.check.survey.answering import in_one_piece, says_how_it_lies, serves, tells_what_comes
from allranks.check.survey.marks import (
    Meeting,
    are_programs,
    breaks,
    ends_job,
    exits,
    first_meeting,
    own_conditions,
    raises,
)
from allranks.check.survey.sequence import (
    LONGEST,
    Items,
    alike,
    atoms,
    conditions,
    doubtful,
    flat,
    hangs_on,
    holds,
    is_setting,
    meets,
    named,
    one_way,
    resolved,
    retried,
    settled,
    settles,
)


class Parting(NamedTuple):
    """A branch of ``result`` after which processes go different ways. ``sides``: (who, what they meet in); ``under``:
    what its condition depends on; ``answered``: each side meets somebody by itself, not in what they share."""

    cause: str
    result: Result
    guard: Span
    condition: str
    meeting: Meeting
    sides: tuple[tuple[str, tuple[str, ...]], ...]
    under: int = 0
    answered: bool = False


_NO_BRANCH: TraceNode = ("branch", "UUUU", 0, (), (), (0, 0, 0, 0), "", "")
_END: Items = (("end",),)  # stands for what follows, whatever it is


@dataclass(slots=True)
class Comparison:
    """Compares roles. Sequences of functions are kept: each is asked for many times."""

    _known: dict[tuple[int, int, Look], Items] = field(default_factory=dict)

    def function(self, result: Result, role: int, look: Look) -> Items:
        """Return the items of a whole function."""
        key = (id(result), role, look)
        if key not in self._known:
            self._known[key] = ()  # a circle of calls adds nothing
            items = self.items(result.trace, role, look, (), False)
            self._known[key] = items if len(items) <= LONGEST else (("many", hash(items)),)
        return self._known[key]

    def items(self, trace: Trace, role: int, look: Look, rest: Items, loop: bool) -> Items:
        for node in reversed(trace):
            rest = self.before(node, role, look, rest, loop)
        return rest

    def before(self, node: TraceNode, role: int, look: Look, rest: Items, loop: bool) -> Items:
        """Return the items of ``node`` and what follows it."""
        tag = node[0]
        if tag == "meet":
            return rest if look.misses(node[2]) else (node[1], *rest)
        if tag == "call":
            return self.function(node[1].result, role, look.inside()) + rest
        if tag == "exit":
            return (("jump", "return" if node[1] == "end" else node[1]),) if loop and node[1] != "raise" else ()
        if tag == "branch":
            return self._branch(node, role, look, rest, loop)
        if tag == "loop":
            return self._loop(node, role, look, rest, loop)
        if tag == "try":
            return self._try(node, role, look, rest, loop)
        if tag == "around":
            body = self.items(node[2], role, look, (), loop)
            around = self.function(node[1].result, role, look.inside())
            at = around.index(("yield",)) if ("yield",) in around else len(around)
            return (*around[:at], *body, *around[at + 1 :], *rest)
        return rest if tag == "apart" else (("yield",), *rest)

    def _branch(self, node: TraceNode, role: int, look: Look, rest: Items, loop: bool) -> Items:
        _, truth, _, then, orelse, _, _, condition = node
        letter = "W" if _is_vague(truth) else truth[role]
        if letter in "TF":
            return self.items(then if letter == "T" else orelse, role, look, rest, loop)
        if (over := ends_job(node)) is not None:
            return self.items(orelse if over is then else then, role, look, rest, loop)
        look = look.under(condition)
        if look.straight and not loop and truth == UNKNOWN:  # who returns early by data, returns with all others
            for side, other in ((then, orelse), (orelse, then)):
                if exits(side) and not exits(other) and not self.items(side, role, look, _END, loop):
                    return self.items(other, role, look, rest, loop)
        if not exits(then) and not exits(orelse):
            one, two = (self.items(side, role, look, (), loop) for side in (then, orelse))
            return one + rest if one == two else (("if", condition, one, two), *rest)
        one, two = (self.items(side, role, look, rest, loop) for side in (then, orelse))
        return one if one == two else (("if", condition, one, two),)

    def _loop(self, node: TraceNode, role: int, look: Look, rest: Items, loop: bool) -> Items:
        body, orelse = node[3], node[5]
        inside, ending = self.items(body, role, look, (), True), self.items(orelse, role, look, (), loop)
        if ending and one_way(self.items(body, role, look, (("again",),), True), ending):
            return ending + rest  # it is left by a break that meets as the end does
        if ending and holds(inside, ("jump", "break")):
            ending = (("if", "", ending, ()),)
        leaves = (ending or rest) and holds(inside, ("jump", "return"))
        return (("loop", inside), *ending, *rest) if meets(inside) or leaves else ending + rest

    def _try(self, node: TraceNode, role: int, look: Look, rest: Items, loop: bool) -> Items:
        _, body, handlers, orelse = node
        caught = [self.items(handler, role, look, (), loop) for handler in handlers if not raises(handler)]
        if any(map(meets, caught)):
            ending = self.items(orelse, role, look, (), loop)
            if not meets(self.items(body, role, look, (), loop)) and alike((ending, *caught)):
                return ending + rest
            rest = (("except", *caught), *rest)
        return self.items((*body, *orelse), role, look, rest, loop)

    def partings(self, result: Result, alive: int) -> Iterator[Parting | tuple[Called, int]]:
        """Yield where the ``alive`` roles part in this function, and the calls on the way with who makes them."""
        ways = [self.function(result, role, Look()) for role in _roles(alive)]
        open_still = frozenset().union(*(conditions(settled(way)) for way in ways))
        yield from self._walk(result, result.trace, alive, Ahead((), False, alike(ways), open_still))

    def even(self, results: Sequence[Result]) -> bool:
        """Return whether all roles meet alike in functions that are called one after another, though not in each. What
        is asked further down (what kind of group a barrier is given) is answered alike in each of them."""
        ways = [tuple(item for r in results for item in self.function(r, role, Look())) for role in range(4)]
        here = frozenset().union(*(own_conditions(r.trace) for r in results))

        def is_settled(way: Items) -> bool:
            asked = conditions(way)
            return settles(way, conditions(settled(way))) or not (doubtful(asked) or here & asked)

        return alike(ways) and all(map(is_settled, ways))

    def _walk(self, result: Result, trace: Trace, alive: int, ahead: Ahead) -> Iterator[Parting | tuple[Called, int]]:
        settled, owed = 0, _NO_BRANCH  # up to here, branches make up for each other, this one and those after it
        for at, node in enumerate(trace):
            tag, after = node[0], trace[at + 1 :]
            if tag == "call":
                if at >= settled and not self._balanced(node[1], alive, after, ahead):
                    yield node[1], alive
            elif tag == "apart":
                yield node[1], EVERY
            elif tag == "branch":
                if are_programs(node) and first_meeting(_after(after, ahead).after) is None:
                    continue
                if at >= settled:
                    settled, owed = self._balance(trace, at, alive), node
                here = ahead if at >= settled or _is_open(owed, alive) else ahead._replace(level=True)
                paid = at < settled and named(node[7]) == named(owed[7])
                found = None if paid else self._parting(result, node, alive, after, here)
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
                inside = Ahead((), True, ahead.level, ahead.open, node[3], node[1] == TRUE)
                yield from self._walk(result, node[3], alive, inside)
                yield from self._walk(result, node[5], alive, _after(after, ahead))
            elif tag == "try":
                for inner, branch in enumerate(node[1]):  # a finally may make up for what its try begins with
                    stretch = (*node[1][inner:], *after)
                    end = self._balance(stretch, 0, alive) if branch[0] == "branch" and _is_open(branch, alive) else 0
                    if (beyond := at + 1 + end - len(node[1]) + inner) > max(settled, at + 1):
                        settled, owed = beyond, branch
                ending = _after(after, ahead)._replace(straight=(*after, *ahead.straight))
                for part in ((*node[1], *node[3]), *node[2]):
                    yield from self._walk(result, part, alive, ending)
            elif tag == "around":
                if not self._balanced(node[1], alive, after, ahead):
                    yield node[1], alive
                yield from self._walk(result, node[2], alive, _after(after, ahead))
            elif tag == "exit":
                return

    def _uneven(self, result: Result, node: TraceNode) -> Parting | None:
        """A loop in which all meet, and which each process goes round as often as it finds things for itself; or as
        often as it was told, where some were told otherwise."""
        _, truth, taint, body, span, _ = node
        told = truth == BY_RANK
        if not told and (not (taint & RANKS or "P" in truth) or taint & STATE or not span[0]):
            return None
        look = Look(1 if told or taint & (ALONE | CLOCK) else 2)
        if not any(meets(self.items(body, role, look, (), True)) for role in range(4)):
            return None
        meeting = first_meeting(body)
        return None if meeting is None else Parting("rounds" if told else "loop", result, span, "", meeting, ())

    def _balance(self, trace: Trace, at: int, alive: int) -> int:
        """Return where a stretch ends that begins with a branch on the rank and is the same for all; 0 if nowhere."""
        if exits(trace[at : at + 1]):
            return 0
        look = Look((1 if trace[at][2] & (ALONE | CLOCK) else 2) if _is_open(trace[at], alive) else 0, straight=True)
        for end in range(at + 1, len(trace) + 1):
            stretch = trace[at + 1 : end]
            if not stretch or stretch[-1][0] in ("branch", "call", "exit"):
                if exits(stretch[-1:]):
                    if stretch[-1][0] == "branch" and stretch[-1][1] == UNKNOWN:
                        continue
                    return 0
                later = {role: self.items(stretch, role, look, (), False) for role in _roles(alive)}
                ways = (self._ways(trace[at], {role: later[role]}, look, False).values() for role in later)
                if alike(way for both in ways for way in both):
                    return end
        return 0

    def _sides(
        self, result: Result, node: TraceNode, alive: int, after: Trace, ahead: Ahead
    ) -> Iterator[Parting | tuple[Called, int]]:
        later, asked = _after(after, ahead), node[7] or node[6]
        for side, other in ((node[3], "F"), (node[4], "T")):
            inside = sum(1 << role for role in _roles(alive) if node[1][role] != other)
            if side and inside:
                told = is_setting(asked) or says_how_it_lies(asked)
                known = (*ahead.known, (asked, side is node[3])) if told else ahead.known
                yield from self._walk(result, side, inside, later._replace(known=known))

    def _balanced(self, called: Called, alive: int, after: Trace, ahead: Ahead) -> bool:
        """Roles differ in the callee, and what its caller does afterwards makes up for it."""
        own = {role: self.function(called.result, role, Look()) for role in _roles(alive)}
        if alike(own.values()):
            return ahead.level and all(settles(items, ahead.open) for items in own.values())
        later = _after(after, ahead).after
        return ahead.level or alike((*own[role], *self.items(later, role, Look(), (), ahead.loop)) for role in own)

    def _left(self, node: TraceNode, alive: int) -> int:
        gone = 0
        for role in _roles(alive):
            side = node[3] if node[1][role] == "T" else node[4] if node[1][role] == "F" else ()
            gone |= 1 << role if side and side[-1][0] == "exit" else 0
        return alive & ~gone

    def _parting(self, result: Result, node: TraceNode, alive: int, after: Trace, ahead: Ahead) -> Parting | None:
        truth, then, orelse, condition = node[1], node[3], node[4], node[7]
        roles = _roles(alive)
        letters = {truth[role] for role in roles}
        if _is_vague(truth) or ends_job(node) is not None or not (letters & set("DP") or len(letters) > 1):
            return None
        if (ahead.level and not letters & set("DP")) or serves(node):
            return None
        look = _look(node, alive)
        here_alone = look.drop and not node[2] & (ALONE | CLOCK)
        further = (*after, *ahead.straight) if here_alone else _after(after, ahead).after

        def ways(look: Look) -> dict[str, Items]:
            later = {role: self.items(further, role, look, (), ahead.loop) for role in roles}
            for asked, held in ahead.known:
                later = {role: resolved(items, asked, held) for role, items in later.items()}
            found = self._ways(node, later, look, ahead.loop)
            return {who: in_one_piece(items, ahead.known) for who, items in found.items()}

        found = ways(look)
        if alike(found.values()) or alike(self._ways(node, dict.fromkeys(roles, _END), look, ahead.loop).values()):
            return None  # they meet alike; or it is not here that they part
        if "P" not in letters and _both_meet(node, after) and tells_what_comes(set(ways(Look()).values())):
            return None
        if ahead.endless and alike(map(retried, found.values())):
            return None  # who goes round once more before meeting anybody is late, no more
        if not any(map(meets, found.values())) and not self._goes_round(found, ahead, look):
            return None
        flags = atoms(condition)
        here = [self.items(side, role, look, (), ahead.loop) for side in (then, orelse) for role in roles]
        here += [self.items(_after(after, ahead).after, role, look, (), ahead.loop) for role in roles]
        if "U" in letters and any(map(meets, here)) and all(hangs_on(items, flags) for items in here):
            return None  # the same flag that lets some go decides whether there is anything to meet for
        if alike(ways(look._replace(straight=True, sure=True)).values()):
            return None  # they may meet or not, by data that functions further down look at
        alone = "P" in letters and "D" not in letters and len(letters) == 1
        return self._described(result, node, found, (*after, *ahead.after, *ahead.again), (alone, ahead.loop))

    def _goes_round(self, ways: Mapping[str, Items], ahead: Ahead, look: Look) -> bool:
        """Whether some leave a loop that meets in its next round."""
        leaves = any(holds(items, ("jump", kind)) for items in ways.values() for kind in ("break", "return"))
        return leaves and any(meets(self.items(ahead.again, role, look, (), True)) for role in range(4))

    def _ways(self, node: TraceNode, later: Mapping[int, Items], look: Look, loop: bool) -> dict[str, Items]:
        """Return what each goes on to from a branch; ``later``: what every role meets in behind it."""
        truth, condition = node[1], node[7]
        ways: dict[str, Items] = {}
        for role, rest in later.items():
            if truth[role] in "DP":
                lasting = "" if truth[role] == "P" and "(" in condition else condition  # a file may be there by now
                for who, side, held in (("where it holds", node[3], True), ("elsewhere", node[4], False)):
                    ways[who] = self.items(side, role, look, resolved(rest, lasting, held), loop)
                break
            ways[ROLES[role]] = self.before(node, role, look, rest, loop)
        return ways

    def _described(
        self, result: Result, node: TraceNode, ways: dict[str, Items], after: Trace, where: tuple[bool, bool]
    ) -> Parting | None:
        """``where``: whether each process decides alone, and whether the branch stands in a loop."""
        by_process, loop = where
        _, truth, taint, then, orelse, span, condition, _ = node
        met = {who: tuple(flat(items)) for who, items in ways.items()}
        sides: dict[tuple[str, ...], list[str]] = {}
        for who, ops in met.items():
            sides.setdefault(ops, []).append(who)
        same = len({tuple(sorted(ops)) for ops in sides}) == 1 and len(sides) > 1
        inside = first_meeting((*then, *orelse))
        meeting = inside or first_meeting(after)
        if meeting is None:
            return None
        early = inside is None
        state = taint & STATE and set(truth) & set("UD")
        told = "process" if by_process else "state" if state else "return" if early else "order" if same else "rank"
        leaves = breaks(then) or breaks(orelse) or (by_process and loop and taint & CLOCK and exits((node,)))
        cause = "exit" if (early or by_process) and leaves else told
        # Who leaves a loop meets in this round whom the others meet: that tells nobody anything.
        described = tuple((in_words(who), ops[:8]) for ops, who in sides.items()) if len(sides) > 1 else ()
        return Parting(cause, result, span, condition, meeting, described, taint, _both_meet(node, after))


def _after(after: Trace, ahead: Ahead) -> Ahead:
    return ahead._replace(after=(*after, *ahead.after), straight=())


def _both_meet(node: TraceNode, after: Trace) -> bool:
    """Whether each side of a branch meets somebody by itself, not in what they share."""
    then, orelse = node[3], node[4]
    own = ((*side, *after) if exits(other) else side for side, other in ((then, orelse), (orelse, then)))
    return all(first_meeting(side) is not None for side in own)


def _is_open(node: TraceNode, alive: int) -> bool:
    """Whether it is not known of some role which side it takes."""
    return any(node[1][role] in "DP" for role in _roles(alive))


def _is_vague(truth: str) -> bool:
    """Whether the rank has a say, and of no two roles is it known that they go different ways."""
    return "W" in truth and not {"T", "F"} <= set(truth)


def _look(node: TraceNode, alive: int) -> Look:
    """Return which meetings say something of those that part at a branch."""
    truth = node[1]
    if breaks(node[3]) or breaks(node[4]) or node[2] & (ALONE | CLOCK):
        return Look(1)
    if _is_open(node, alive) or truth[2] in (truth[0], "W"):  # the first of another group may go with the first
        return Look(2)
    return Look(1 if truth[1] in (truth[0], "W") else 0)


def _roles(mask: int) -> list[int]:
    return [role for role in range(4) if mask >> role & 1]
