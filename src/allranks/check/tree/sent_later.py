"""Who leaves because he has nothing, when all were to send one another what they have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.syntax import Function, asks_rank, calls_of, function_of, is_constant, own, places_in, tail_of

# Objects are sent where each process may have more or fewer.
_OBJECTS = re.compile(r"^_?(all_)?gather_(obj|object|list)$|^all_gather_list$")
_NUMBERS = re.compile(r"^_?all_?reduce$")
_MEETS = re.compile(r"reduce|gather|broadcast|barrier|sync|wait_for")
_OF_MODEL = re.compile(r"(?i)param|tensor|weight|module")  # all have the same parts
_GRADIENTS = re.compile(r"(?i)(^|_)grads?(_|$)")


def leaves_with_nothing(branch: ast.If, file: File) -> str:
    """Return what a process has nothing of when it leaves, and the others go on to send theirs; empty if there is no
    such thing."""
    function = function_of(branch, file)
    if function is None or branch.orelse or asks_rank(branch.test):
        return ""
    if not isinstance(branch.body[-1], ast.Return) or any(map(_meets, branch.body)):
        return ""
    found = [name for name in _empty(branch.test) if not _OF_MODEL.search(name)]
    many = file.once("counted, gone through or filled", file.tree, lambda _: _of_many(file)) if found else frozenset()
    told = (name for name in found if name in many or _is_given_away(name, function))
    return next((name for name in told if _is_sent(name, function, branch)), "")


def _is_given_away(name: str, function: Function) -> bool:
    """Whether what is empty is itself what is sent, as it is: no switch is."""
    calls = (at for at in own(function) if isinstance(at, ast.Call) and _OBJECTS.search(tail_of(at)))
    return any(isinstance(one, ast.Name) and one.id == name for call in calls for one in call.args)


def _is_sent(name: str, function: Function, branch: ast.If) -> bool:
    """Whether what is empty, or what is made of it, is sent below a branch, and nothing of it above."""
    calls = [at for at in own(function) if isinstance(at, ast.Call)]
    if any(at.lineno < branch.lineno and _MEETS.search(tail_of(at)) and name in places_in(at) for at in calls):
        return False
    sends = [at for at in calls if at.lineno > (branch.end_lineno or branch.lineno) and _sends(at, name)]
    made = _made_of(name, function) if sends else frozenset[str]()
    given = (places_in(value) for at in sends for value in (*at.args, *(word.value for word in at.keywords)))
    return any(not made.isdisjoint(names) for names in given)


def _of_many(file: File) -> frozenset[str]:
    """Return what is counted, gone through or filled anywhere in a file, as it is written: no switch is."""
    loops = (at.iter for at in file.nodes if isinstance(at, ast.For | ast.comprehension))
    counted = (at.args[0] for at in calls_of(file).get("len", ()) if at.args)
    filled = (
        at.func.value
        for word in ("append", "extend")
        for at in calls_of(file).get(word, ())
        if isinstance(at.func, ast.Attribute)
    )
    return frozenset[str]().union(*map(places_in, (*loops, *counted, *filled)))


def _sends(call: ast.Call, name: str) -> bool:
    of_gradients = _GRADIENTS.search(name) is not None and _NUMBERS.search(tail_of(call)) is not None
    return of_gradients or _OBJECTS.search(tail_of(call)) is not None


def _meets(statement: ast.stmt) -> bool:
    return any(isinstance(at, ast.Call) and _MEETS.search(tail_of(at)) for at in walk(statement))


def _empty(test: ast.expr) -> Iterator[str]:
    """``not rows``, ``len(rows) == 0``, also beside other conditions: yield what they find empty, as it is written."""
    asked: ast.expr | None = None
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _empty(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        asked = test.operand
    elif isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq) and is_constant(test.comparators[0], 0):
        asked = test.left if isinstance(test.left, ast.Call) else None
    if isinstance(asked, ast.Call) and tail_of(asked) == "len" and asked.args:
        asked = asked.args[0]
    if isinstance(asked, ast.Name | ast.Attribute):
        yield ast.unparse(asked)


def _made_of(name: str, function: Function) -> frozenset[str]:
    """Return what a function makes of something, line by line, with itself."""
    made = {name}
    stored = [at for at in own(function) if isinstance(at, ast.Assign | ast.For)]
    for at in sorted(stored, key=lambda one: one.lineno):
        source = at.iter if isinstance(at, ast.For) else at.value
        if not made.isdisjoint(places_in(source)):
            targets = [at.target] if isinstance(at, ast.For) else at.targets
            made |= {ast.unparse(part) for one in targets for part in walk(one) if isinstance(part, ast.Name)}
    return frozenset(made)
