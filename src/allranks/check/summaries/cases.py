"""The cases of a ``match`` as conditions, one in the ``else`` of the other."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TypeVar

_Made = TypeVar("_Made", ast.stmt, ast.expr)
_ASKS_AGAIN = (ast.Call, ast.Await, ast.NamedExpr)


def as_conditions(node: ast.Match) -> list[ast.stmt]:
    """Return statements that go the way of a ``match``; what names a pattern gives deeper inside is left out."""
    subject, before = node.subject, list[ast.stmt]()
    if any(isinstance(part, _ASKS_AGAIN) for part in ast.walk(subject)):  # it is evaluated once
        name = ast.unparse(subject)
        before = [_placed(ast.Assign([ast.Name(name, ast.Store())], subject), subject)]
        subject = _placed(ast.Name(name, ast.Load()), subject)
    return [*before, *_chain(subject, node.cases)]


def _chain(subject: ast.expr, cases: Sequence[ast.match_case]) -> list[ast.stmt]:
    if not cases:
        return []
    case, *others = cases
    given = [_placed(ast.Assign([ast.Name(n, ast.Store())], v), case.pattern) for n, v in _given(subject, case.pattern)]
    tests = [t for t in (_test(subject, case.pattern), case.guard) if t is not None]
    if not tests:
        return [*given, *case.body]
    test = tests[0] if len(tests) == 1 else _placed(ast.BoolOp(ast.And(), tests), case.pattern)
    return [*given, _placed(ast.If(test, case.body, _chain(subject, others)), case.pattern)]


def _test(subject: ast.expr, pattern: ast.pattern) -> ast.expr | None:
    """Return the condition of a pattern; None of one that takes everything."""
    match pattern:
        case ast.MatchAs(pattern=None):
            return None
        case ast.MatchAs(pattern=ast.pattern() as inner):
            return _test(subject, inner)
        case ast.MatchValue(value=value):
            return _placed(ast.Compare(subject, [ast.Eq()], [value]), pattern)
        case ast.MatchSingleton(value=constant):
            return _placed(ast.Compare(subject, [ast.Is()], [ast.Constant(constant)]), pattern)
        case ast.MatchOr(patterns=patterns):
            tests = [_test(subject, one) for one in patterns]
            known = [test for test in tests if test is not None]
            return _placed(ast.BoolOp(ast.Or(), known), pattern) if len(known) == len(tests) else None
        case ast.MatchSequence() if (parts := _parts(subject, pattern)) is not None:
            known = [test for part in parts if (test := _test(*part)) is not None]
            return _placed(ast.BoolOp(ast.And(), known), pattern) if len(known) > 1 else next(iter(known), None)
        case ast.MatchClass(cls=kind, patterns=[], kwd_patterns=[]):
            return _placed(ast.Call(ast.Name("isinstance", ast.Load()), [subject, kind], []), pattern)
    return _placed(ast.Compare(subject, [ast.Eq()], [ast.Name(ast.unparse(pattern), ast.Load())]), pattern)


def _given(subject: ast.expr, pattern: ast.pattern) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that a pattern gives to what is known."""
    if isinstance(pattern, ast.MatchAs) and pattern.name is not None:
        yield pattern.name, subject
    for part in _parts(subject, pattern) or ():
        yield from _given(*part)


def _parts(subject: ast.expr, pattern: ast.pattern) -> list[tuple[ast.expr, ast.pattern]] | None:
    """Return the elements of a tuple, each with its pattern; None if they do not stand in the source."""
    if not (isinstance(subject, ast.Tuple | ast.List) and isinstance(pattern, ast.MatchSequence)):
        return None
    starred = any(isinstance(part, ast.Starred | ast.MatchStar) for part in (*subject.elts, *pattern.patterns))
    return (
        None
        if starred or len(subject.elts) != len(pattern.patterns)
        else list(zip(subject.elts, pattern.patterns, strict=True))
    )


def _placed(made: _Made, at: ast.AST) -> _Made:
    return ast.fix_missing_locations(ast.copy_location(made, at))
