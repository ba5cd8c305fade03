"""Who logs how much: functions that give the ranks levels of their own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.sources.source import File
from allranks.check.tree.syntax import asks_rank, function_at, own, rank_guard, tail_of, words_of


def logs_less_elsewhere(line: int, file: File) -> bool:
    """Say whether the function around a line sets a level or a filter of logging that depends on the rank, by the
    names in it."""
    scope = function_at(line, file) or file.tree
    levels = list(_levels(scope))
    names = {level.id for level in levels if isinstance(level, ast.Name)}
    bound = (s for s in own(scope) if isinstance(s, ast.Assign) and _binds(s, names))
    return (
        any(asks_rank(level) or rank_guard(level, file) is not None for level in levels)
        or any(_goes_by_rank(s.value) or rank_guard(s, file) is not None for s in bound)
        or _filters_by_rank(scope, file)
    )


def _levels(scope: ast.AST) -> Iterator[ast.expr]:
    """Yield what is given as a level."""
    for call in own(scope):
        if isinstance(call, ast.Call):
            yield from call.args[:1] if tail_of(call) == "setLevel" else ()
            yield from (given.value for given in call.keywords if given.arg == "level")


def _filters_by_rank(scope: ast.AST, file: File) -> bool:
    """Whether a filter is given that asks for the rank, itself or in a function of this file."""
    given = [k.value for call in own(scope) if isinstance(call, ast.Call) for k in call.keywords if k.arg == "filter"]
    named = {name for value in given for name in words_of(value)}
    asked = [at for at in file.kinds.get(ast.FunctionDef, ()) if isinstance(at, ast.FunctionDef) and at.name in named]
    answers = (at.value for function in asked for at in own(function) if isinstance(at, ast.Return) and at.value)
    return any(map(asks_rank, (*given, *answers)))


def _binds(statement: ast.Assign, names: set[str]) -> bool:
    return any(isinstance(target, ast.Name) and target.id in names for target in statement.targets)


def _goes_by_rank(value: ast.expr) -> bool:
    return isinstance(value, ast.IfExp) and asks_rank(value.test)
