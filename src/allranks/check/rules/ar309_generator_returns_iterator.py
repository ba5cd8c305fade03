"""AR309: a generator that returns an iterator yields nothing of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.syntax import calls_of, function_of, inside, own, tail_of, words_of
from allranks.findings import Edit, Finding, Fix, Place

_ITERATES = re.compile(
    r"^_?(iter|iterate|generate|generator|stream|batches|read)(_|$)|_(iter|iterator|generator|stream)$"
)
_MAKERS = ("iter", "map", "filter", "zip", "chain", "islice", "from_iterable")


class GeneratorReturnsIterator(LocalRule):
    """
    ## What it does
    Finds `return iterate(...)` in a function that also has a `yield`. Such a function is a generator: the returned
    iterator is lost, and a loop over it sees nothing on that path.

    ## Why is this bad
    The data set is empty, without an error. This happens when a special case for several processes is put at the top of
    a generator.

    ## What happens with N processes
    One process takes the other path, and all is well. With several processes, every rank trains on an empty data set.
    Or the ranks on this path leave the epoch at once, and the others wait for them.

    ## Known problems
    A generator whose result is taken with `result = yield from f()` may return an iterator on purpose. A function that
    is used so in the same file is not reported.

    No fault of this kind has been seen in real code yet.

    ## Use instead
    `yield from iterate(...)`, then `return`.

    ## Fix safety
    Safe if the call is one of a generator function of the same file.
    """

    code, name, severity, row = "AR309", "generator-returns-iterator", "error", "data"
    cluster = "The loop over this generator ends at once: an empty data set, without an error."
    advice = "Write `yield from ...` and then `return`."
    words = ("yield",)
    nodes = (ast.FunctionDef,)
    bad = (
        Example(
            {
                "dataset.py": """\
import jax


def iterate_sharded(n):
    for i in range(n):
        yield i


def iterate(n, shard_data=True):
    if shard_data and jax.process_count() > 1:
        return iterate_sharded(n)
    for i in range(n):
        yield i
"""
            },
            at=(11,),
        ),
        Example(
            {
                "dataset.py": """\
class Rows:
    def __iter__(self):
        if self.world > 1:
            return iter(self.mine)
        for row in self.rows:
            yield row
"""
            },
            at=(4,),
        ),
    )
    good = (
        Example(
            {
                "dataset.py": """\
def sharded(n):
    yield from range(n)


def iterate(n, several):
    if several:
        yield from sharded(n)
        return
    yield from range(n)
"""
            }
        ),
        Example(
            {
                "dataset.py": """\
def part(n):
    yield n
    return iter(range(n))


def whole(n):
    rest = yield from part(n)
    yield from rest
"""
            }
        ),
        # Nobody comes to it: who calls it has asked.
        Example(
            {
                "dataset.py": """\
class Rows:
    def __iter__(self):
        if self.several and not self.complete:
            return self.stream()
        return iter(self.rows)

    def stream(self):
        if self.complete:
            return iter(self.rows)
        while self.queue:
            yield self.queue.pop()
"""
            }
        ),
        Example({"dataset.py": "def total(rows):\n    for row in rows:\n        yield row\n    return len(rows)\n"}),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        yielding = file.once("generators", file.tree, lambda _: _generators(file))
        if not isinstance(node, ast.FunctionDef) or node not in yielding:
            return
        returns = [at for at in own(node) if isinstance(at, ast.Return) and at.value is not None]
        if not returns or _result_is_taken(node.name, file):
            return
        generators = {
            at.name for at in file.kinds[ast.FunctionDef] if isinstance(at, ast.FunctionDef) and at in yielding
        }
        for at in returns:
            if at.value is not None and _is_iterator(at.value, generators) and not _is_ruled_out(at, node, file):
                yield self.local(
                    file,
                    at,
                    f"{node.name} is a generator: what it returns here is lost, and a loop over it sees nothing",
                    fix=_fix(at, file, generators),
                )


def _generators(file: File) -> frozenset[ast.AST]:
    """Return the functions of a file that yield."""
    yields = (*file.kinds.get(ast.Yield, ()), *file.kinds.get(ast.YieldFrom, ()))
    return frozenset(function for at in yields if (function := function_of(at, file)) is not None)


def _is_iterator(value: ast.expr, generators: set[str]) -> bool:
    if isinstance(value, ast.GeneratorExp):
        return True
    tail = tail_of(value) if isinstance(value, ast.Call) else ""
    return tail in generators or tail in _MAKERS or bool(_ITERATES.search(tail))


def _is_ruled_out(at: ast.Return, function: ast.FunctionDef, file: File) -> bool:
    """Whoever calls the generator in this file has asked before, and the answer was another than leads there."""
    asked = next(
        (ast.unparse(p.test) for p, child in inside(at, file) if isinstance(p, ast.If) and child in p.body), ""
    )
    calls = calls_of(file).get(function.name, ())
    return bool(asked and calls) and all(f"not {asked}" in _held(call, file) for call in calls)


def _held(node: ast.AST, file: File) -> set[str]:
    """Return what holds where ``node`` stands: the conditions around it in its function, each for itself."""
    tests = [p.test for p, child in inside(node, file) if isinstance(p, ast.If) and child in p.body]
    parts = (part for test in tests for part in (test.values if isinstance(test, ast.BoolOp) else [test]))
    whole = all(not isinstance(test, ast.BoolOp) or isinstance(test.op, ast.And) for test in tests)
    return {ast.unparse(part) for part in parts} if whole else set()


def _result_is_taken(name: str, file: File) -> bool:
    """Somewhere ``x = yield from name(...)`` stands: its return value is part of what it does."""
    return any(
        isinstance(at, ast.Assign | ast.Return | ast.AnnAssign)
        and isinstance(at.value, ast.YieldFrom | ast.Await)
        and name in set(words_of(at.value))
        for at in file.nodes
    )


def _fix(at: ast.Return, file: File, generators: set[str]) -> Fix | None:
    value = at.value
    if value is None or not isinstance(value, ast.Call) or tail_of(value) not in generators:
        return None
    whole, inner = file.place(at), file.place(value)
    before = Place(whole.path, whole.line, whole.column, inner.line, inner.column)
    after = Place(whole.path, whole.end_line, whole.end_column, whole.end_line, whole.end_column)
    indent = file.lines[at.lineno - 1][: len(file.lines[at.lineno - 1]) - len(file.lines[at.lineno - 1].lstrip())]
    if file.lines[at.lineno - 1][: whole.column - 1].strip():
        return None  # `if x: return f()` on one line
    return Fix("yield from", (Edit(before, "yield from "), Edit(after, f"\n{indent}return")), safe=True)
