"""A tree into a summary: what the interpreter needs of one file, as plain tuples that `marshal` can keep.

Expressions are ``(tag, ...)``; a call and a branch carry their span, an attribute where its name ends:

    name id · const value · attr base name line end · call function arguments keywords span · op left right symbol ·
    not x · and xs · or xs · cmp left symbols rights · ifexp test a b span · text parts · seq elements ·
    dict keys values · sub base index · fn key · comp element generators · bind name value · yield value · star x ·
    many parts (whatever else: its parts are evaluated)

Statements are ``(tag, line, ...)``: expr, assign, aug, return, raise, if, for, while, with, try, break, continue, def,
class, import, global, match. A body is kept as bytes of its own and read only when the function is interpreted.
"""

from __future__ import annotations

import ast
import marshal
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

Node: TypeAlias = tuple[Any, ...]
_Lowerers: TypeAlias = dict[type[ast.AST], Callable[["_Lowering", Any], Node]]
LONGEST_TEXT = 120


class FunctionFacts(NamedTuple):
    """``words``: every name that the body calls or reads as an attribute. ``owner``: the class it is a method of."""

    name: str
    owner: str
    positional: tuple[str, ...]
    keyword_only: tuple[str, ...]
    variadic: tuple[str, str]
    defaults: tuple[tuple[str, Node], ...]
    annotations: tuple[tuple[str, Node], ...]
    decorators: tuple[Node, ...]
    span: tuple[int, int, int, int]
    words: tuple[str, ...]
    stored: tuple[str, ...]
    body: bytes


class ClassFacts(NamedTuple):
    """``methods``: name -> key of the function; ``body``: its other statements; ``stores``: attribute -> methods."""

    name: str
    bases: tuple[Node, ...]
    methods: tuple[tuple[str, str], ...]
    body: bytes


class Summary(NamedTuple):
    """One file. Keys are qualified inside it (``Trainer.save``, ``main.<inner>``); the module's own body is ``""``."""

    functions: dict[str, FunctionFacts]
    classes: dict[str, ClassFacts]
    imports: tuple[tuple[str, str], ...]
    strings: tuple[str, ...] = ()


def lower(tree: ast.Module) -> Summary:
    """Return the summary of a file. Raises RecursionError for code that is nested too deeply."""
    lowering = _Lowering()
    lowering.module(tree)
    return Summary(lowering.functions, lowering.classes, tuple(lowering.imports.items()))


def dump(summary: Summary) -> bytes:
    """Return the summary as bytes."""
    functions = {key: tuple(facts) for key, facts in summary.functions.items()}
    classes = {key: tuple(facts) for key, facts in summary.classes.items()}
    return marshal.dumps((functions, classes, summary.imports, summary.strings))


def load(raw: bytes) -> Summary:
    """Return the summary that `dump` wrote. Raises ValueError, EOFError or TypeError for other bytes."""
    functions, classes, imports, strings = marshal.loads(raw)  # noqa: S302 - plain values, from our own cache
    return Summary(
        {key: FunctionFacts(*facts) for key, facts in functions.items()},
        {key: ClassFacts(*facts) for key, facts in classes.items()},
        imports,
        strings,
    )


def body_of(facts: FunctionFacts | ClassFacts) -> tuple[Node, ...]:
    """Return the statements of a function or a class."""
    statements: tuple[Node, ...] = marshal.loads(facts.body)  # noqa: S302 - as in `load`
    return statements


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
            "", "", (), (), ("", ""), (), (), (), blank, tuple(self.words), (), marshal.dumps(body)
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
        annotations = tuple((a.arg, _annotation(a.annotation)) for a in noted)
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
        )
        inner = self.words
        self.prefix, self.owner, self.words, self.stored, self.methods = outside
        self.words |= inner
        return key


_PENDING = FunctionFacts("", "", (), (), ("", ""), (), (), (), (1, 0, 1, 0), (), (), b"")


def _annotation(node: ast.expr | None) -> Node:
    """A dotted annotation, quoted or not, ``X | None`` and ``Optional[X]`` as X; anything else is nothing."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.replace(".", "").isidentifier():
        head, *tail = node.value.split(".")
        dotted: Node = ("name", head)
        for part in tail:
            dotted = ("attr", dotted, part, node.lineno, 0)
        return dotted
    if isinstance(node, ast.Name):
        return ("name", node.id)
    if isinstance(node, ast.Attribute):
        return ("attr", _annotation(node.value), node.attr, node.lineno, 0)
    if isinstance(node, ast.BinOp):
        left = _annotation(node.left)
        return left if left != ("const", None) else _annotation(node.right)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Optional":
        return _annotation(node.slice)
    return ("const", None)


# Expressions


def _name(low: _Lowering, node: ast.Name) -> Node:
    low.words.add(node.id)
    return ("name", node.id)


def _constant(low: _Lowering, node: ast.Constant) -> Node:
    value = node.value
    return ("const", value[:LONGEST_TEXT] if isinstance(value, str | bytes) else value)


def _attribute(low: _Lowering, node: ast.Attribute) -> Node:
    low.words.add(node.attr)
    value = node.value
    return ("attr", EXPRESSIONS[type(value)](low, value), node.attr, node.end_lineno, node.end_col_offset)


def _call(low: _Lowering, node: ast.Call) -> Node:
    function = node.func
    span = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
    keywords = tuple([(k.arg, EXPRESSIONS[type(k.value)](low, k.value)) for k in node.keywords])
    return ("call", EXPRESSIONS[type(function)](low, function), low.expressions(node.args), keywords, span)


def _binary(low: _Lowering, node: ast.BinOp) -> Node:
    return ("op", low.expression(node.left), low.expression(node.right), _SYMBOLS.get(type(node.op), "?"))


def _unary(low: _Lowering, node: ast.UnaryOp) -> Node:
    operand = low.expression(node.operand)
    if isinstance(node.op, ast.Not):
        return ("not", operand)
    if operand[0] == "const" and isinstance(node.op, ast.USub) and isinstance(operand[1], int | float):
        return ("const", -operand[1])
    return ("many", (operand,))


def _boolean(low: _Lowering, node: ast.BoolOp) -> Node:
    span = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
    return ("and" if isinstance(node.op, ast.And) else "or", low.expressions(node.values), span)


def _compare(low: _Lowering, node: ast.Compare) -> Node:
    symbols = tuple([_COMPARISONS[type(op)] for op in node.ops])
    return ("cmp", low.expression(node.left), symbols, low.expressions(node.comparators))


def _choice(low: _Lowering, node: ast.IfExp) -> Node:
    test = node.test
    span = (test.lineno, test.col_offset, test.end_lineno, test.end_col_offset)
    return ("ifexp", low.expression(test), low.expression(node.body), low.expression(node.orelse), span)


def _text(low: _Lowering, node: ast.JoinedStr) -> Node:
    return ("text", tuple([low.expression(v.value if isinstance(v, ast.FormattedValue) else v) for v in node.values]))


def _sequence(low: _Lowering, node: ast.Tuple | ast.List | ast.Set) -> Node:
    return ("seq", low.expressions(node.elts))


def _dict(low: _Lowering, node: ast.Dict) -> Node:
    return ("dict", tuple([low.expression(key) for key in node.keys]), low.expressions(node.values))


def _subscript(low: _Lowering, node: ast.Subscript) -> Node:
    return ("sub", low.expression(node.value), low.expression(node.slice))


def _lambda(low: _Lowering, node: ast.Lambda) -> Node:
    line = node.body.lineno
    return ("fn", low.function(node, "<lambda>", lambda: (("return", line, low.expression(node.body)),), ()))


def _comprehension(low: _Lowering, node: Any) -> Node:
    elements = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
    loops = tuple([(_target(low, g.target), low.expression(g.iter), low.expressions(g.ifs)) for g in node.generators])
    return ("comp", low.expressions(elements), loops)


def _walrus(low: _Lowering, node: ast.NamedExpr) -> Node:
    return ("bind", node.target.id, low.expression(node.value))


def _yield(low: _Lowering, node: ast.Yield) -> Node:
    return ("yield", low.expression(node.value))


def _await(low: _Lowering, node: ast.Await) -> Node:
    return low.expression(node.value)


def _star(low: _Lowering, node: ast.Starred) -> Node:
    return ("star", low.expression(node.value))


def _many(low: _Lowering, node: ast.expr) -> Node:
    parts = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    return ("many", low.expressions(parts))


EXPRESSIONS: _Lowerers = {
    ast.Name: _name,
    ast.Constant: _constant,
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolean,
    ast.Compare: _compare,
    ast.IfExp: _choice,
    ast.JoinedStr: _text,
    ast.Tuple: _sequence,
    ast.List: _sequence,
    ast.Set: _sequence,
    ast.Dict: _dict,
    ast.Subscript: _subscript,
    ast.Lambda: _lambda,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.DictComp: _comprehension,
    ast.NamedExpr: _walrus,
    ast.Yield: _yield,
    ast.Await: _await,
    ast.Starred: _star,
    ast.YieldFrom: _yield,
    ast.Slice: _many,
    ast.FormattedValue: _many,
}
for _late in ("TemplateStr", "Interpolation"):  # Python 3.14
    if hasattr(ast, _late):
        EXPRESSIONS[getattr(ast, _late)] = _many
_SYMBOLS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.BitOr: "|",
    ast.BitAnd: "&", ast.Pow: "**",
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Is: "is",
    ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip


# Statements


def _target(low: _Lowering, node: ast.expr) -> Node:
    if isinstance(node, ast.Name):
        return ("name", node.id)
    if isinstance(node, ast.Attribute):
        low.stored.add(node.attr)
    if isinstance(node, ast.Tuple | ast.List):
        return ("seq", tuple([_target(low, element) for element in node.elts]))
    return low.expression(node)


def _expr(low: _Lowering, node: ast.Expr) -> Node:
    return () if isinstance(node.value, ast.Constant) else ("expr", node.lineno, low.expression(node.value))


def _assign(low: _Lowering, node: ast.Assign) -> Node:
    return ("assign", node.lineno, tuple([_target(low, t) for t in node.targets]), low.expression(node.value))


def _annotated(low: _Lowering, node: ast.AnnAssign) -> Node:
    value = low.expression(node.value) if node.value is not None else ("typed", _annotation(node.annotation))
    return ("assign", node.lineno, (_target(low, node.target),), value)


def _augmented(low: _Lowering, node: ast.AugAssign) -> Node:
    value = ("op", low.expression(node.target), low.expression(node.value), _SYMBOLS.get(type(node.op), "?"))
    return ("assign", node.lineno, (_target(low, node.target),), value)


def _return(low: _Lowering, node: ast.Return) -> Node:
    return ("return", node.lineno, low.expression(node.value))


def _raise(low: _Lowering, node: ast.Raise) -> Node:
    return ("raise", node.lineno, low.expression(node.exc))


def _assert(low: _Lowering, node: ast.Assert) -> Node:
    return ("expr", node.lineno, low.expression(node.test))


def _if(low: _Lowering, node: ast.If) -> Node:
    test = node.test
    span = (test.lineno, test.col_offset, test.end_lineno, test.end_col_offset)
    return ("if", node.lineno, low.expression(test), low.block(node.body), low.block(node.orelse), span)


def _for(low: _Lowering, node: ast.For) -> Node:
    header = (_target(low, node.target), low.expression(node.iter))
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
        bound = _target(low, item.optional_vars) if item.optional_vars is not None else None
        items.append((low.expression(at), bound, span))
    return ("with", node.lineno, tuple(items), low.block(node.body))


def _try(low: _Lowering, node: ast.Try) -> Node:
    handlers = []
    for handler in node.handlers:
        kind = low.expression(handler.type)
        handlers.append((kind, handler.name or "", low.block(handler.body), handler.lineno))
    body = low.block(node.body)
    return ("try", node.lineno, body, tuple(handlers), low.block(node.orelse), low.block(node.finalbody))


def _jump(low: _Lowering, node: ast.Break | ast.Continue) -> Node:
    return ("break" if isinstance(node, ast.Break) else "continue", node.lineno)


def _define(low: _Lowering, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Node:
    decorators = low.expressions(node.decorator_list)
    key = low.function(node, node.name, lambda: low.block(node.body), decorators)
    if low.owner:
        low.methods.append((node.name, key))
    return ("def", node.lineno, node.name, key)


def _class(low: _Lowering, node: ast.ClassDef) -> Node:
    key, bases = low.key(node.name), low.expressions(node.bases)
    outside = (low.prefix, low.owner, low.methods)
    low.prefix, low.owner, low.methods = f"{key}.", key, []
    low.classes[key] = ClassFacts(node.name, bases, (), b"")
    body = tuple(s for s in low.block(node.body) if s[0] != "def")
    low.classes[key] = ClassFacts(node.name, bases, tuple(low.methods), marshal.dumps(body))
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


def _global(low: _Lowering, node: ast.Global | ast.Nonlocal) -> Node:
    return ("global", node.lineno, tuple(node.names)) if isinstance(node, ast.Global) else ()


def _match(low: _Lowering, node: ast.Match) -> Node:
    cases = tuple((low.expression(case.guard), low.block(case.body)) for case in node.cases)
    return ("match", node.lineno, low.expression(node.subject), cases)


def _nothing(low: _Lowering, node: ast.stmt) -> Node:
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
