"""What a trace shows at a glance: where it is left, and whom it meets first."""

from __future__ import annotations

from allranks.check.state import Span, Trace, TraceNode


def raises(trace: Trace) -> bool:
    return bool(trace) and trace[-1] == ("exit", "raise")


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


def first_meeting(trace: Trace) -> tuple[Span, str, str] | None:
    """Return the first meeting on a trace: where the function sees it, what it is called in the end, and its op."""
    for node in trace:
        found = None
        if node[0] == "meet":
            found = node[3], node[4], node[1]
        elif node[0] in ("call", "around"):
            inner = first_meeting(node[1].result.trace)
            found = (node[1].span, *inner[1:]) if inner is not None else None
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
