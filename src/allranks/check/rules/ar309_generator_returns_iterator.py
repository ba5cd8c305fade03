"""AR309: a generator that returns an iterator yields nothing of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.syntax import function_of, own, tail_of, words_of
from allranks.findings import Edit, Finding, Fix, Place

_MAKERS = ("iter", "map", "filter", "zip", "chain", "islice", "from_iterable")


class GeneratorReturnsIterator(LocalRule):
    """
    ## What it does
    Finds `return iterate(...)` in a function that also has a `yield`, where `iterate` is a generator of the same file.
    Such a function is a generator: the returned iterator is lost, and a loop over it sees nothing on that path.

    ## Why is this bad
    The data set is empty, without an error. This happens when a special case for several processes is put at the top of
    a generator.

    ## What happens with N processes
    One process takes the other path, and all is well. With several processes, every rank trains on an empty data set.

    ## Known problems
    A generator whose result is taken with `result = yield from f()` may return an iterator on purpose. A function that
    is used so in the same file is not reported.

    ## Use instead
    `yield from iterate(...)`, then `return`.

    ## Fix safety
    Safe: the iterator is lost without it.
    """

    code, name, severity, row = "AR309", "generator-returns-iterator", "error", "data"
    cluster = "The loop over this generator ends at once: an empty data set, without an error."
    advice = "Write `yield from ...` and then `return`."
    words = ("yield",)
    nodes = (ast.Return,)
    bad = (
        """\
# file: rows.py
import jax


def part(rows):
    yield from rows[jax.process_index() :: jax.process_count()]


def rows(every):
    if jax.process_count() > 1:
        return part(every)  # <-- found
    yield from every
""",
    )
    good = (
        """\
# file: rows.py
def part(rows):
    yield from rows


def rows(every, several):
    if several:
        yield from part(every)
        return
    yield from every


def either(every):
    return part(every)
""",
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Return) or not isinstance(node.value, ast.Call):
            return
        function, generators = function_of(node, file), file.once("generators", file.tree, lambda _: _generators(file))
        if function is None or function.name not in generators or not _yields(function):
            return
        if tail_of(node.value) in (*generators, *_MAKERS) and not _is_result_taken(function.name, file):
            message = f"{function.name} is a generator: what it returns here is lost, and a loop over it sees nothing"
            yield self.local(file, node, message, fix=_fix(node, node.value, file))


def _yields(function: ast.AST) -> bool:
    return any(isinstance(at, ast.Yield | ast.YieldFrom) for at in own(function))


def _generators(file: File) -> frozenset[str]:
    functions = (at for at in file.kinds.get(ast.FunctionDef, ()) if isinstance(at, ast.FunctionDef))
    return frozenset(at.name for at in functions if _yields(at))


def _is_result_taken(name: str, file: File) -> bool:
    """Whether ``x = yield from name(...)`` stands somewhere: its return value is part of what it does."""
    stored = (at.value for at in file.nodes if isinstance(at, ast.Assign | ast.Return | ast.AnnAssign))
    return any(isinstance(one, ast.YieldFrom | ast.Await) and name in words_of(one) for one in stored)


def _fix(at: ast.Return, value: ast.Call, file: File) -> Fix | None:
    whole, inner, line = file.place(at), file.place(value), file.lines[at.lineno - 1]
    indent = line[: len(line) - len(line.lstrip())]
    if line[: whole.column - 1].strip():
        return None  # `if x: return f()` on one line
    before = Place(whole.path, whole.line, whole.column, inner.line, inner.column)
    after = Place(whole.path, whole.end_line, whole.end_column, whole.end_line, whole.end_column)
    return Fix("yield from", (Edit(before, "yield from "), Edit(after, f"\n{indent}return")), safe=True)
