"""Whose steps are the same number for all, however much data each process was dealt: those that are counted, that
begin their data again for ever, that end where all agree, or that torch's ``Join`` lets end one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from allranks.check.sources.source import is_test
from allranks.check.summaries.project import Project, closed
from allranks.check.summaries.summary import FunctionFacts, Node, blocks, body_of, calls_below, statements_in
from allranks.check.survey.rounds import endless_loops

_JOINS = frozenset({"Join", "join_uneven_inputs"})
_LEARNS = re.compile(r"^(backward|(\w+_)?step(_fn)?|train_batch|apply_gradients)$")
_MEETS = frozenset(
    [
        *("all_reduce", "allreduce", "all_gather", "all_gather_object", "broadcast", "broadcast_object_list"),
        *("process_allgather", "broadcast_one_to_all", "reduce", "gather"),
    ]
)
_COUNTS = ("range", "trange")
_AROUND = ("enumerate", "tqdm", "zip", "iter", "track")


def steady(project: Project) -> frozenset[str]:
    """Return the files whose data feeds steps that are the same number for all, as far as who imports them tells."""
    files = {path: summary for path, summary in project.summaries.items() if not is_test(path)}
    functions = [(path, facts) for path, summary in files.items() for facts in summary.functions.values()]
    meeting = _MEETS | {facts.name for _, facts in functions if facts.name and not _MEETS.isdisjoint(facts.words)}
    endless = {_called(facts) for _, facts in functions if _is_endless(facts)}
    found = {path for path, facts in functions if _is_steady(facts, endless, meeting)}
    programs = found | {user for path in found for user in project.importers(path) if user in files}
    return frozenset(closed(programs, project.imported))


def _called(facts: FunctionFacts) -> str:
    return facts.owner.rpartition(".")[2] if facts.name == "__iter__" else facts.name


def _is_steady(facts: FunctionFacts, endless: set[str], meeting: frozenset[str]) -> bool:
    words = set(facts.words)
    if words & _JOINS:
        return True
    learns = any(map(_LEARNS.search, words))
    if learns and words & endless and _called(facts) not in endless:
        return True
    if not words & {"next", "islice"}:
        return False
    loops = [at for at in statements_in(body_of(facts)) if at[0] in ("for", "while")]
    feeds = learns or b"yield" in facts.body
    return any((feeds and _is_counted(loop)) or _ends_agreed(loop, meeting) for loop in loops)


def _is_endless(facts: FunctionFacts) -> bool:
    """A generator that begins what it goes over again, for ever."""
    if b"yield" not in facts.body or b"while" not in facts.body:
        return False
    return any(_begins_again(loop[3]) for loop in endless_loops(facts))


def _begins_again(body: tuple[Node, ...]) -> bool:
    """``yield from loader``, or a loop over it that yields; and nothing in it leaves."""
    if any(at[0] in ("break", "return", "raise", "try") for at in _own(body)):
        return False
    plain = not any(at[0] == "if" for at in _own(body))
    return any(_has(at, "yield") for at in body if at[0] == "for" or (plain and at[0] == "expr"))


def _is_counted(loop: Node) -> bool:
    """A loop over ``islice(batches, steps)``, or of a number of rounds that takes the next batch in each."""
    if loop[0] == "for":
        over = loop[3]
        while over[0] == "call" and _tail(over) in _AROUND and over[2]:
            over = over[2][0]
        if over[0] == "call" and _tail(over) == "islice":
            return len(over[2]) == 2
        rounds = over[0] == "call" and _tail(over) in _COUNTS
    else:
        rounds = loop[2][0] == "cmp"
    body = loop[4] if loop[0] == "for" else loop[3]
    return rounds and any(_takes_next(at) for at in _own(body)) and not _gives_up(body)


def _gives_up(body: tuple[Node, ...]) -> bool:
    """The loop is left where its data ends."""
    tries = (at for at in _own(body) if at[0] == "try" and any(_takes_next(one) for one in _own(at[2])))
    return any(_leaves(handler[2]) for at in tries for handler in at[3])


def _ends_agreed(loop: Node, meeting: frozenset[str]) -> bool:
    """A loop that takes the next batch, if there is one, and is left by what all processes have said of theirs."""
    body = loop[4] if loop[0] == "for" else loop[3]
    own = list(_own(body))
    if not any(map(_takes_next, own)):
        return False
    calls = [call for at in own if at[0] in ("expr", "assign") for call in calls_below(at) if _tail(call) in meeting]
    agreed = {name for call in calls for given in call[2][:1] for name in _names(given)}
    agreed |= {
        name
        for at in own
        if at[0] == "assign" and any(_tail(call) in meeting for call in calls_below(at[3]))
        for target in at[2]
        for name in _names(target)
    }
    tests = (at[2] for at in own if at[0] == "if" and (_leaves(at[3]) or _leaves(at[4])))
    return any(
        not agreed.isdisjoint(_names(test)) or any(_tail(call) in meeting for call in calls_below(test))
        for test in tests
    )


def _takes_next(statement: Node) -> bool:
    """``batch = next(batches)``, in the statement itself."""
    if statement[0] not in ("expr", "assign", "return"):
        return False
    return any(call[1] == ("name", "next") for call in calls_below(statement))


def _tail(call: Node) -> str:
    function = call[1]
    return str(function[2] if function[0] == "attr" else function[1] if function[0] == "name" else "")


def _names(node: object) -> Iterator[str]:
    """Yield the variables in an expression."""
    if not isinstance(node, tuple):
        return
    if len(node) == 2 and node[0] == "name":
        yield node[1]
        return
    for part in node:
        yield from _names(part)


def _has(node: object, tag: str) -> bool:
    return isinstance(node, tuple) and ((bool(node) and node[0] == tag) or any(_has(part, tag) for part in node))


def _leaves(body: tuple[Node, ...]) -> bool:
    """Whether anything in it leaves the loop around."""
    return any(at[0] in ("break", "return") for at in _own(body))


def _own(body: tuple[Node, ...]) -> Iterator[Node]:
    """Yield the statements of a loop's body, but those of loops in it."""
    for statement in body:
        yield statement
        if statement[0] not in ("for", "while"):
            for block in blocks(statement):
                yield from _own(block)
