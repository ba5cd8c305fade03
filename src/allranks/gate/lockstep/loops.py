"""Parse source code for the loops around a line, and find the counting variable and the collection of each loop."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType

from allranks.source import parse

# An endless ``count()`` is left out: each rank may go through it at its own speed.
_COUNTING = {"range", "trange", "arange"}
# Calls that hand on what they are given, one by one: progress bars and the like.
_PASSING = {"tqdm", "track", "reversed", "iter", "list", "tuple", "progress_bar"}
_UNORDERED = {"set", "frozenset", "list", "tuple", "iter"}


@dataclass(frozen=True, slots=True)
class SourceLoop:
    """A loop in a file, at the line ``line``.

    ``counter`` is the variable that counts; "" for none. ``targets`` are all variables that the loop sets. ``over`` is
    the name of its collection, e.g. ``self.grads``; "" if the collection has no name.
    """

    line: int
    counter: str
    targets: tuple[str, ...]
    over: str = ""


@dataclass(frozen=True, slots=True)
class _LoopWithLines:
    """A loop with the lines of its body, and the first line of the function that contains it (0: the module)."""

    loop: SourceLoop
    first: int
    last: int
    function: int


def loops_around_line(code: CodeType, line: int) -> Sequence[SourceLoop]:
    """Return the loops of a code object around a line, outermost first; none if there is no source."""
    function = 0 if code.co_name == "<module>" else code.co_firstlineno
    placed = _loops_of(code.co_filename)
    return [one.loop for one in placed if one.function == function and one.first <= line <= one.last]


def loops_of_source(source: str) -> list[_LoopWithLines]:
    """Return the loops of a source, with their lines; none if the source does not parse."""
    tree = parse(source)
    return [] if tree is None else list(_loops_below(tree, function=0))


@functools.cache
def _loops_of(filename: str) -> list[_LoopWithLines]:
    return loops_of_source("".join(linecache.getlines(filename)))


def _loops_below(node: ast.AST, function: int) -> Iterator[_LoopWithLines]:
    for child in ast.iter_child_nodes(node):
        within = function
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            within = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
        elif isinstance(child, ast.Lambda):
            within = child.lineno
        elif isinstance(child, ast.For | ast.While):
            loop = _of_for(child, child.lineno) if isinstance(child, ast.For) else _of_while(child)
            yield _LoopWithLines(loop, child.body[0].lineno, child.body[-1].end_lineno or child.lineno, function)
        elif isinstance(child, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            last = child.end_lineno or child.lineno
            for loop in [_of_for(one, child.lineno) for one in child.generators]:
                yield _LoopWithLines(loop, child.lineno, last, child.lineno)
                yield _LoopWithLines(loop, child.lineno, last, function)  # Python 3.12 makes no function of it
        yield from _loops_below(child, within)


def _of_for(node: ast.For | ast.comprehension, line: int) -> SourceLoop:
    targets = tuple(one.id for one in ast.walk(node.target) if isinstance(one, ast.Name))
    return SourceLoop(line, _counting_variable(node.target, node.iter), targets, _collection_name(node.iter))


def _collection_name(iterated: ast.expr) -> str:
    """Return the name of the collection whose elements, keys or values a loop's first variable takes; else ""."""
    if isinstance(iterated, ast.Set):
        return ast.unparse(iterated)
    if isinstance(iterated, ast.Call):
        called = ast.unparse(iterated.func).rpartition(".")[2]
        if called in ("items", "keys", "values") and isinstance(iterated.func, ast.Attribute):
            return _collection_name(iterated.func.value)
        return _collection_name(iterated.args[0]) if called in _UNORDERED and iterated.args else ""
    names = ast.unparse(iterated)
    return names if names.replace(".", "").isidentifier() else ""


def _of_while(node: ast.While) -> SourceLoop:
    """Return the SourceLoop of a ``while``. Its counter is a variable of the condition to which the body adds 1."""
    named = {one.id for one in ast.walk(node.test) if isinstance(one, ast.Name)}
    for step in node.body:
        if isinstance(step, ast.AugAssign) and isinstance(step.target, ast.Name) and step.target.id in named:
            return SourceLoop(node.lineno, step.target.id if ast.unparse(step).endswith("+= 1") else "", ())
    return SourceLoop(node.lineno, "", ())


def _counting_variable(target: ast.expr, iterated: ast.expr) -> str:
    """Return the variable that counts in ``for target in iterated``; "" for none."""
    if not isinstance(iterated, ast.Call):
        return ""
    called, arguments = ast.unparse(iterated.func).rpartition(".")[2], iterated.args
    if called in _COUNTING and isinstance(target, ast.Name):
        return target.id
    if called in _PASSING and arguments:
        return _counting_variable(target, arguments[0])
    if not isinstance(target, ast.Tuple):
        return ""
    if called == "enumerate" and isinstance(target.elts[0], ast.Name):
        return target.elts[0].id
    if called == "zip":
        found = (_counting_variable(one, given) for one, given in zip(target.elts, arguments, strict=False))
        return next(filter(None, found), "")
    return ""
