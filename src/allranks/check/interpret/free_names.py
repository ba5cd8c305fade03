"""Names that nothing has yet: a loop goes on to the next one as long as something of the last is there. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.interpret.rounds import assigned
from allranks.check.interpret.state import Span
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import FunctionFacts, Node, body_of, calls_below, nodes_in, statements_in

_ASKS = frozenset(["exists", "lexists", "isfile", "isdir", "is_file", "is_dir"])
_MAKES = frozenset(["mkdir", "makedirs"])
_LEAVES = ("break", "return")


def free_name(facts: FunctionFacts, at: Span) -> str:
    """Return under what variable a function makes a folder for whose name it has looked, in a loop that goes on as long
    as something is there, which the call ``at`` asks; empty if it does not."""
    if _MAKES.isdisjoint(facts.words):
        return ""
    body = body_of(facts)
    loops = (one for one in statements_in(body) if one[0] == "while" or _counts(one))
    name = next((name for loop in loops for span, name in _asked(loop) if span == at), "")
    made = (call for call in calls_below(body) if _called(call) in _MAKES)
    names = _made_of(name, body) if name else set()
    return next((one for call in made for one in _names(call) if one in names), "")


def _counts(statement: Node) -> bool:
    """Whether it is a loop over numbers: one over files may look whether all are there."""
    return statement[0] == "for" and statement[3][0] == "call" and _called(statement[3]) in ("range", "count")


def _asked(loop: Node) -> Iterator[tuple[Span, str]]:
    """Yield the calls that ask whether what a loop sets anew is there, and what that is."""
    body = loop[3] if loop[0] == "while" else loop[4]
    changed = set(assigned((loop,)))
    tests = [loop[2]] if loop[0] == "while" and loop[2][0] != "not" else []
    tests += [one[2] for one in body if one[0] == "if" and _goes_on_where_it_is(one)]
    for call in (call for test in tests for call in calls_below(test) if _called(call) in _ASKS):
        if (name := next((one for one in _names(call) if one in changed), "")) != "":
            yield call[4], name


def _goes_on_where_it_is(branch: Node) -> bool:
    """Whether a loop is left where nothing is there."""
    left = branch[3] if branch[2][0] == "not" else branch[4]
    return bool(left) and left[-1][0] in _LEAVES


def _made_of(name: str, body: tuple[Node, ...]) -> set[str]:
    """Return the variables that a function makes of one, with that."""
    found = {name}
    for statement in statements_in(body):
        if statement[0] == "assign" and not found.isdisjoint(_names(statement[3])):
            found.update(assigned((statement,)))
    return found


def _called(call: Node) -> str:
    return render(call[1]).rpartition(".")[2]


def _names(node: Node) -> Iterator[str]:
    return (one[1] for one in nodes_in((node,)) if one[0] == "name")
