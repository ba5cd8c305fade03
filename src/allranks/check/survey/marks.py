"""What a trace shows at a glance: where it is left, and whom it meets first."""

from __future__ import annotations

from typing import NamedTuple

from allranks.check.interpret.state import Span, Trace, TraceNode
from allranks.check.interpret.values import CLOCK


def raises(trace: Trace) -> bool:
    return bool(trace) and trace[-1] == ("exit", "raise")


def ends_job(node: TraceNode) -> Trace | None:
    """Return the side of a branch that ends the job: it raises, or the process ends there by what this one alone has
    found, which is mostly that something is wrong."""
    alone = set(node[1]) <= {"D", "P"} and not node[2] & CLOCK
    sides: tuple[Trace, Trace] = (node[3], node[4])
    for side in sides:
        if raises(side) or (alone and side[-1:] == (("exit", "end"),)):
            return side
    return None


def breaks(trace: Trace) -> bool:
    """Whether a way through it leaves the loop around."""
    return any(
        node == ("exit", "break") or (node[0] == "branch" and (breaks(node[3]) or breaks(node[4]))) for node in trace
    )


def exits(trace: Trace) -> bool:
    """Whether a way through it leaves the function or a loop around it."""
    for node in trace:
        if node[0] == "exit":
            return True
        if node[0] == "branch" and (exits(node[3]) or exits(node[4])):
            return True
        if node[0] == "try" and any(map(exits, (node[1], node[3], *node[2]))):
            return True
    return False


def are_programs(node: TraceNode) -> bool:
    """Whether ranks part for good, each into a function of its own (a player and its trainers): these are different
    programs on purpose, which answer each other."""
    sides = (node[3], node[4])
    if set(node[1]) != {"T", "F"} or any(len(side) != 1 or side[0][0] != "call" for side in sides):
        return False
    one, two = (side[0][1].result.reference for side in sides)
    return bool(one != two)


def own_conditions(trace: Trace) -> frozenset[str]:
    """Return the conditions of a function's own branches: of a condition and its contrary, one."""
    found = set[str]()
    for node in trace:
        if node[0] == "branch":
            found |= {node[7].removeprefix("not "), *own_conditions((*node[3], *node[4]))}
        elif node[0] == "loop":
            found |= own_conditions((*node[3], *node[5]))
        elif node[0] == "try":
            found |= own_conditions((*node[1], *node[3], *(one for handler in node[2] for one in handler)))
        elif node[0] == "around":
            found |= own_conditions(node[2])
    return frozenset(found)


class Meeting(NamedTuple):
    """Where a function sees a meeting, what it is called in the end, its op, and the calls that lead on to it: what is
    called, and where that sees it."""

    span: Span
    name: str
    op: str
    way: tuple[tuple[str, Span], ...] = ()


def first_meeting(trace: Trace) -> Meeting | None:
    """Return the first meeting on a trace."""
    for node in trace:
        found = None
        if node[0] == "meet":
            found = Meeting(node[3], node[4], node[1])
        elif node[0] in ("call", "around"):
            result = node[1].result
            inner = first_meeting(result.trace)
            if inner is not None:
                found = inner._replace(span=node[1].span, way=((result.reference, inner.span), *inner.way))
            if node[0] == "around" and found is None:
                found = first_meeting(node[2])
        elif node[0] == "branch":
            found = first_meeting((*node[3], *node[4]))
        elif node[0] == "loop":
            found = first_meeting((*node[3], *node[5]))
        elif node[0] == "try":
            found = first_meeting((*node[1], *node[3], *(n for handler in node[2] for n in handler)))
        if found is not None:
            return found
    return None
