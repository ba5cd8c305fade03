"""Where a process ends, and who of the four does so in a function that is called.

Who ends well leaves the others alone, as who returns does, and leaves the callers too. Who ends with an error ends the
job: the launcher sees to the others. Not so with mpi4py: at the end of Python each process waits for the others, before
the launcher learns how it has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from allranks.check.interpret.held import is_guarded
from allranks.check.interpret.state import NOBODY, Called, Ended, Frame, Trace, TraceNode, meets
from allranks.check.interpret.truth import FALSE, TRUE, UNKNOWN, both, certain, decides, either, negate, roles_where
from allranks.check.interpret.values import PROCESS, RANKS, Value
from allranks.check.summaries.summary import Node, Summary

# A side of a branch: whether it is left; the roles that are at its end, for certain and perhaps; variables; its trace.
Side: TypeAlias = tuple[bool, int, int, dict[str, Value], Trace]
# Functions that end the process, as they are called.
_EXITS = (("name", "exit"), ("name", "quit"), ("attr", ("name", "sys"), "exit"), ("attr", ("name", "os"), "_exit"))
_RAISED = ("name", "SystemExit")
_AT_ONCE = ("attr", ("name", "os"), "_exit")
_WELL = (None, 0, False)


def how_it_ends(node: Node, summary: Summary) -> str:
    """Return ``end`` for an expression that leaves the others alone, ``raise`` for one that ends the job; else nothing.
    ``summary``: of its file."""
    if node == _RAISED:
        return "end"
    if node[0] != "call" or not (node[1] in _EXITS or node[1][:3] in _EXITS or node[1] == _RAISED):
        return ""
    code = node[2][0] if node[2] else ("const", None)
    waits = node[1][:3] != _AT_ONCE and summary.uses("mpi4py")
    return "end" if waits or (code[0] == "const" and code[1] in _WELL) else "raise"


def ended(trace: Trace) -> Ended:
    """Return of whom a function with this trace ends the process, where they leave nobody behind in itself: those who
    wait for them there are told of there."""
    found = NOBODY
    for at, node in enumerate(trace):
        here = _ended_at(node)
        if here.truth != FALSE and not any(map(meets, trace[at + 1 :])):
            truth = either(found.truth, here.truth) if found.truth != FALSE else here.truth
            found = Ended(truth, found.taint | here.taint, found.condition or here.condition)
        if node[0] == "exit":
            break
    return found


def stayed(truth: str, gone: Trace, *, flipped: bool) -> int:
    """Return the roles that can go on past a side of a branch that ends the job: where it lets the job live at all,
    nobody is missing. ``gone``: the trace of that side; ``flipped``: whether it is taken where ``truth`` holds."""
    if gone[-1:] != (("exit", "raise"),):
        return 0
    return roles_where(negate(truth) if flipped else truth, "TUPWD")


def going_on(truth: str, then: Side, orelse: Side) -> tuple[int, int]:
    """Return the roles that go on past a branch, for certain and perhaps: where an option has them train together, and
    ends all but rank 0 after it, those who come there without training are one process too, or must not be others."""
    sides = [side for side in (then, orelse) if not side[0]]
    if truth == UNKNOWN and len(sides) == 2:
        met = [side for side in sides if any(map(meets, side[4]))]
        sides = met if len(met) == 1 and _is_for_first(ended(met[0][4]).truth) else sides
    mask = may = 0
    for side in sides:
        mask, may = mask | side[1], may | side[2]
    return mask, may


def _is_for_first(gone: str) -> bool:
    return gone[0] == "F" and "F" not in gone[1:]


def _ended_at(node: TraceNode) -> Ended:
    tag = node[0]
    if node == ("exit", "end"):
        return Ended(TRUE)
    if tag == "branch":
        _, truth, taint, then, orelse, _, _, told = node
        one, two = ended(then), ended(orelse)
        if one == two == NOBODY:
            return NOBODY
        who = either(both(truth, one.truth), both(negate(truth), two.truth))
        inner = one if one != NOBODY else two
        return Ended(who, taint | one.taint | two.taint, inner.condition or told)
    if tag == "around":
        return ended(node[2])
    if tag == "try" and not any(node[2]):
        return ended((*node[1], *node[3]))
    if tag == "loop" and not any(map(meets, node[3])):
        inside = ended(node[3])
        return inside._replace(truth=inside.truth.replace("T", "U"))
    return NOBODY


def leave_with(frame: Frame, calls: Sequence[Called], gate: str) -> None:
    """Take out of a frame the roles whose process a call has ended: that of one function, which is known."""
    if len(calls) != 1 or calls[0].result.ended == NOBODY:
        return
    truth, taint, told = calls[0].result.ended
    truth = both(gate or TRUE, truth)
    if truth == TRUE:
        frame.nodes.append(("exit", "end"))
    elif decides(truth) and "F" in truth:
        frame.nodes.append(("branch", truth, taint, (("exit", "end"),), (), calls[0].span, told, ""))
        frame.implicit |= taint & (PROCESS | (RANKS if set(truth) & set("DW") else 0))
        frame.guard = calls[0].span
    elif truth == UNKNOWN and is_guarded(frame):  # who is here leaves the others alone, under a condition of its own
        frame.nodes.append(("branch", truth, taint, (("exit", "end"),), (), calls[0].span, told, ""))
    else:
        return
    frame.exits += 1
    frame.mask &= roles_where(negate(truth), certain(truth, ranked=True))
    frame.may &= roles_where(negate(truth), "TUPWD")
