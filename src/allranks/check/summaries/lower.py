"""A tree into a summary, in one walk."""

from __future__ import annotations

import ast
import marshal
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from allranks.check.summaries.cases import as_conditions
from allranks.check.summaries.expressions import EXPRESSIONS, SYMBOLS, annotation, target
from allranks.check.summaries.summary import ClassFacts, FunctionFacts, Node, Summary

_FOR_TYPES = "TYPE_CHECKING"

_Lowerers: TypeAlias = dict[type[ast.AST], Callable[["_Lowering", Any], Node]]


def lower(tree: ast.Module) -> Summary:
    """Return the summary of a file. Raises RecursionError for code that is nested too deeply."""
    lowering = _Lowering()
    lowering.module(tree)
    return Summary(lowering.functions, lowering.classes, tuple(lowering.imports.items()))


class _Lowering:
    """Walks one tree once. ``words`` and ``stored`` are those of the function that is being lowered."""

    def __init__(self) -> None:
        self.functions: dict[str, FunctionFacts] = {}
        self.classes: dict[str, ClassFacts] = {}
        self.imports: dict[str, str] = {}
        self.prefix = ""
        self.owner = ""
        self.words: set[str] = set()
        self.stored: set[str] = set()
        self.methods: list[tuple[str, str]] = []

    def module(self, tree: ast.Module) -> None:
        body = self.block(tree.body)
        blank = (1, 0, 1, 0)
        self.functions[""] = FunctionFacts(
            "", "", (), (), ("", ""), (), (), (), blank, tuple(self.words), tuple(self.stored), marshal.dumps(body)
        )

    def block(self, statements: Sequence[ast.stmt]) -> tuple[Node, ...]:
        done = []
        for statement in statements:
            lowered = STATEMENTS[type(statement)](self, statement)
            if lowered:
                done.append(lowered)
        return tuple(done)

    def expression(self, node: ast.expr | None) -> Node:
        return EXPRESSIONS[type(node)](self, node) if node is not None else ("const", None)

    def expressions(self, nodes: Sequence[ast.expr]) -> tuple[Node, ...]:
        return tuple([EXPRESSIONS[type(node)](self, node) for node in nodes])

    def key(self, name: str) -> str:
        key = stem = f"{self.prefix}{name}"
        count = 1
        while key in self.functions or key in self.classes:
            count += 1
            key = f"{stem}#{count}"
        return key

    def function(self, node: Any, name: str, body: Callable[[], tuple[Node, ...]], decorators: Sequence[Node]) -> str:
        """Lower a function or a lambda; its facts go to `functions` under the key returned."""
        key, arguments = self.key(name), node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        defaulted = positional[len(positional) - len(arguments.defaults) :]
        defaults = [(a.arg, self.expression(d)) for a, d in zip(defaulted, arguments.defaults, strict=True)]
        only = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        defaults += [(a.arg, self.expression(d)) for a, d in only if d is not None]
        noted = [a for a in (*positional, *arguments.kwonlyargs) if a.annotation is not None]
        annotations = tuple((a.arg, annotation(a.annotation)) for a in noted)
        if isinstance(returns := getattr(node, "returns", None), ast.Name | ast.Attribute):
            annotations += (("return", annotation(returns)),)
        outside = (self.prefix, self.owner, self.words, self.stored, self.methods)
        owner = self.owner
        self.prefix, self.owner, self.words, self.stored, self.methods = f"{key}.", "", set(), set(), []
        self.functions[key] = _PENDING
        lowered = body()
        self.functions[key] = FunctionFacts(
            name,
            owner,
            tuple(a.arg for a in positional),
            tuple(a.arg for a in arguments.kwonlyargs),
            (arguments.vararg.arg if arguments.vararg else "", arguments.kwarg.arg if arguments.kwarg else ""),
            tuple(defaults),
            annotations,
            tuple(decorators),
            (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset),
            tuple(self.words),
            tuple(self.stored),
            marshal.dumps(lowered),
            tuple((d.lineno, d.col_offset - 1, d.end_lineno, d.end_col_offset) for d in _decorators(node)),
        )
        inner = self.words
        self.prefix, self.owner, self.words, self.stored, self.methods = outside
        self.words |= inner
        return key


_PENDING = FunctionFacts("", "", (), (), ("", ""), (), (), (), (1, 0, 1, 0), (), (), b"")


def _expr(low: _Lowering, node: ast.Expr) -> Node:
    return () if isinstance(node.value, ast.Constant) else ("expr", node.lineno, low.expression(node.value))


def _assign(low: _Lowering, node: ast.Assign) -> Node:
    return ("assign", node.lineno, tuple([target(low, t) for t in node.targets]), low.expression(node.value))


def _annotated(low: _Lowering, node: ast.AnnAssign) -> Node:
    value = low.expression(node.value) if node.value is not None else ("typed", annotation(node.annotation))
    return ("assign", node.lineno, (target(low, node.target),), value)


def _augmented(low: _Lowering, node: ast.AugAssign) -> Node:
    value = ("op", low.expression(node.target), low.expression(node.value), SYMBOLS.get(type(node.op), "?"))
    return ("assign", node.lineno, (target(low, node.target),), value)


def _return(low: _Lowering, node: ast.Return) -> Node:
    return ("return", node.lineno, low.expression(node.value))


def _raise(low: _Lowering, node: ast.Raise) -> Node:
    return ("raise", node.lineno, low.expression(node.exc))


def _assert(low: _Lowering, node: ast.Assert) -> Node:
    return ("assert", node.lineno, low.expression(node.test))


def _if(low: _Lowering, node: ast.If) -> Node:
    test = node.test
    span = (test.lineno, test.col_offset, test.end_lineno, test.end_col_offset)
    body = [one for s in node.body for one in _noted(s)] if _is_for_types(test) else node.body
    return ("if", node.lineno, low.expression(test), low.block(body), low.block(node.orelse), span)


def _is_for_types(test: ast.expr) -> bool:
    """``if TYPE_CHECKING:``"""
    named = test.id if isinstance(test, ast.Name) else test.attr if isinstance(test, ast.Attribute) else ""
    return named == _FOR_TYPES


def _noted(statement: ast.stmt) -> list[ast.stmt]:
    """Return what a statement for type checkers says of names: what it stores is nowhere where the program runs."""
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        noted = ast.AnnAssign(statement.target, statement.annotation, None, statement.simple)
        return [ast.copy_location(noted, statement)]
    return [] if isinstance(statement, ast.Assign) else [statement]


def _for(low: _Lowering, node: ast.For) -> Node:
    header = (target(low, node.target), low.expression(node.iter))
    each = node.iter
    span = (each.lineno, each.col_offset, each.end_lineno, each.end_col_offset)
    return ("for", node.lineno, *header, low.block(node.body), low.block(node.orelse), span)


def _while(low: _Lowering, node: ast.While) -> Node:
    test = node.test
    span = (test.lineno, test.col_offset, test.end_lineno, test.end_col_offset)
    return ("while", node.lineno, low.expression(test), low.block(node.body), low.block(node.orelse), span)


def _with(low: _Lowering, node: ast.With) -> Node:
    items = []
    for item in node.items:
        at = item.context_expr
        span = (at.lineno, at.col_offset, at.end_lineno, at.end_col_offset)
        bound = target(low, item.optional_vars) if item.optional_vars is not None else None
        items.append((low.expression(at), bound, span))
    return ("with", node.lineno, tuple(items), low.block(node.body))


def _try(low: _Lowering, node: ast.Try | ast.TryStar) -> Node:
    handlers = []
    for handler in node.handlers:
        kind = low.expression(handler.type)
        handlers.append((kind, handler.name or "", low.block(handler.body), handler.lineno))
    body = low.block(node.body)
    return ("try", node.lineno, body, tuple(handlers), low.block(node.orelse), low.block(node.finalbody))


def _jump(_: _Lowering, node: ast.Break | ast.Continue) -> Node:
    return ("break" if isinstance(node, ast.Break) else "continue", node.lineno)


def _define(low: _Lowering, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Node:
    if any(_is_overload(decorator) for decorator in node.decorator_list):
        return ()  # the function that follows is meant
    decorators = low.expressions(node.decorator_list)
    key = low.function(node, node.name, lambda: low.block(node.body), decorators)
    if low.owner:
        low.methods.append((node.name, key))
    return ("def", node.lineno, node.name, key)


def _decorators(node: Any) -> list[Any]:
    """Return those of a function; a lambda has none."""
    return getattr(node, "decorator_list", [])


def _is_overload(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Name | ast.Attribute) and ast.unparse(decorator).endswith("overload")


def _class(low: _Lowering, node: ast.ClassDef) -> Node:
    key, bases = low.key(node.name), low.expressions(node.bases)
    decorators = tuple(low.expressions(node.decorator_list))
    outside = (low.prefix, low.owner, low.methods)
    low.prefix, low.owner, low.methods = f"{key}.", key, []
    low.classes[key] = ClassFacts(node.name, bases, (), b"")
    body = tuple(s for s in low.block(node.body) if s[0] != "def")
    low.classes[key] = ClassFacts(node.name, bases, tuple(low.methods), marshal.dumps(body), decorators)
    low.prefix, low.owner, low.methods = outside
    return ("class", node.lineno, node.name, key)


def _import(low: _Lowering, node: ast.Import) -> Node:
    names = []
    for alias in node.names:
        top = alias.name.partition(".")[0]
        names.append((alias.asname or top, alias.name if alias.asname else top, alias.name))
    low.imports.update({full: "" for _, _, full in names})
    return ("import", node.lineno, tuple((bound, dotted) for bound, dotted, _ in names))


def _import_from(low: _Lowering, node: ast.ImportFrom) -> Node:
    base = "." * node.level + (node.module or "")
    joint = "" if base.endswith(".") else "."
    names = tuple((alias.asname or alias.name, f"{base}{joint}{alias.name}") for alias in node.names)
    low.imports.update({dotted: bound for bound, dotted in names})
    return ("import", node.lineno, names)


def _global(_: _Lowering, node: ast.Global | ast.Nonlocal) -> Node:
    return ("global", node.lineno, tuple(node.names)) if isinstance(node, ast.Global) else ()


def _match(low: _Lowering, node: ast.Match) -> Node:
    return ("if", node.lineno, ("const", True), low.block(as_conditions(node)), (), (node.lineno, 0, node.lineno, 0))


def _nothing(_: _Lowering, __: ast.stmt) -> Node:
    return ()


STATEMENTS: _Lowerers = {
    ast.Expr: _expr,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Return: _return,
    ast.Raise: _raise,
    ast.Assert: _assert,
    ast.If: _if,
    ast.For: _for,
    ast.AsyncFor: _for,
    ast.While: _while,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Try: _try,
    ast.TryStar: _try,
    ast.TryStar: _try,
    ast.Break: _jump,
    ast.Continue: _jump,
    ast.FunctionDef: _define,
    ast.AsyncFunctionDef: _define,
    ast.ClassDef: _class,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.Global: _global,
    ast.Nonlocal: _global,
    ast.Match: _match,
    ast.Pass: _nothing,
    ast.Delete: _nothing,
}
if hasattr(ast, "TypeAlias"):  # Python 3.12
    STATEMENTS[ast.TypeAlias] = _nothing
