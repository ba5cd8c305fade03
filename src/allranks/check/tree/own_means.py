"""A function that goes over held-out data which is dealt out to the processes, and returns the mean of its own part."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import function_called, reached
from allranks.check.tree.own_scores import counts, goes_through_data, reduces
from allranks.check.tree.skips import AGREES
from allranks.check.tree.splits import deals_held_out, split_at
from allranks.check.tree.syntax import Function, calls_of, class_of, function_of, own, places_in, rank_guard, tail_of

_EVALUATES = re.compile(r"(^|_)(val|valid|validate|validation|eval|evaluate|evaluation|test|dev)(_|$)")
# Somebody else may bring the parts together: metrics and evaluators that reduce when they are asked.
_LEFT = re.compile(rf"{AGREES.pattern}|torchmetrics|[Ee]valuator|\.compute\(|interleave")


def own_mean(function: Function, file: File) -> ast.Return | None:
    """Return where a function returns the mean over this process' part, if neither it nor who calls it reduces that."""
    if not _EVALUATES.search(function.name) or not counts(function):
        return None
    if not (_goes_over_part(function, file) or (goes_through_data(function, file) and deals_held_out(file))):
        return None
    if _LEFT.search(ast.unparse(function)) or reduces(function, file, 3):
        return None
    callers = list(_calls(function, file))
    if not callers or any(_is_agreed(call, file) or rank_guard(call, file) for call in callers):
        return None
    returned = [at for at in own(function) if isinstance(at, ast.Return) and at.value is not None]
    return returned[-1] if returned else None


def _goes_over_part(function: Function, file: File) -> bool:
    """``for case in held[rank::world]``"""
    loops = (at.iter for at in own(function) if isinstance(at, ast.For))
    return any(split_at(at, file) for loop in loops for one in reached(loop, file) for at in walk(one))


def _calls(function: Function, file: File) -> Iterator[ast.Call]:
    """Yield the calls of a function in its file; of a method by any object."""
    method = class_of(function, file) is not None
    for call in calls_of(file).get(function.name, ()):
        if isinstance(call.func, ast.Attribute) == method:
            yield call


def _is_agreed(call: ast.Call, file: File) -> bool:
    """What it returns is reduced where it is called, or handed to a function of this file that does so."""
    statement = next((above for above in file.parents(call) if isinstance(above, ast.stmt)), None)
    if statement is None or AGREES.search(ast.unparse(statement)):
        return True
    nodes, names = own(function_of(call, file) or file.tree), _stored(statement)
    for at in nodes:
        if isinstance(at, ast.Assign) and not names.isdisjoint(places_in(at.value)):
            names |= _stored(at)
    others = (at for at in nodes if isinstance(at, ast.Call) and at is not call)
    return any(_agrees(at, file) and not names.isdisjoint(places_in(at)) for at in others)


def _stored(statement: ast.stmt) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return {place for target in targets for place in places_in(target)}


def _agrees(call: ast.Call, file: File) -> bool:
    called = function_called(call, file)
    return bool(_LEFT.search(tail_of(call))) or (called is not None and reduces(called, file, 2))
