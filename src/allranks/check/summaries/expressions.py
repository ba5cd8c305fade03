"""Expressions of the tree into those of the summary."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from allranks.check.sources.nodes import children
from allranks.check.summaries.summary import Node

LONGEST_TEXT = 120


class Lowering(Protocol):
    """What lowering an expression asks of the walk that it is part of."""

    prefix: str
    words: set[str]
    stored: set[str]

    def expression(self, node: ast.expr | None) -> Node: ...
    def expressions(self, nodes: Sequence[ast.expr]) -> tuple[Node, ...]: ...
    def function(
        self, node: Any, name: str, body: Callable[[], tuple[Node, ...]], decorators: Sequence[Node]
    ) -> str: ...


Lowerers: TypeAlias = dict[type[ast.AST], Callable[[Any, Any], Node]]


def annotation(node: ast.expr | None) -> Node:
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
        return ("attr", annotation(node.value), node.attr, node.lineno, 0)
    if isinstance(node, ast.BinOp):
        left = annotation(node.left)
        return left if left != ("const", None) else annotation(node.right)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Optional":
        return annotation(node.slice)
    return ("const", None)


def _name(low: Lowering, node: ast.Name) -> Node:
    low.words.add(node.id)
    return ("name", node.id)


def _constant(low: Lowering, node: ast.Constant) -> Node:
    value = node.value
    if isinstance(value, str) and value.isupper() and value.isidentifier():
        low.words.add(value)  # a variable of the environment
    return ("const", value[:LONGEST_TEXT] if isinstance(value, str | bytes) else value)


def _attribute(low: Lowering, node: ast.Attribute) -> Node:
    low.words.add(node.attr)
    value = node.value
    return ("attr", EXPRESSIONS[type(value)](low, value), node.attr, node.end_lineno, node.end_col_offset)


def _call(low: Lowering, node: ast.Call) -> Node:
    function = node.func
    span = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
    keywords = tuple([(k.arg, EXPRESSIONS[type(k.value)](low, k.value)) for k in node.keywords])
    match node:
        case ast.Call(func=ast.Name("getattr"), args=[_, ast.Constant(str(read)), *_]):
            low.words.add(read)
    return ("call", EXPRESSIONS[type(function)](low, function), low.expressions(node.args), keywords, span)


def _binary(low: Lowering, node: ast.BinOp) -> Node:
    return ("op", low.expression(node.left), low.expression(node.right), SYMBOLS.get(type(node.op), "?"))


def _unary(low: Lowering, node: ast.UnaryOp) -> Node:
    operand = low.expression(node.operand)
    if isinstance(node.op, ast.Not):
        return ("not", operand)
    if operand[0] == "const" and isinstance(node.op, ast.USub) and isinstance(operand[1], int | float):
        return ("const", -operand[1])
    return ("many", (operand,))


def _boolean(low: Lowering, node: ast.BoolOp) -> Node:
    span = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
    return ("and" if isinstance(node.op, ast.And) else "or", low.expressions(node.values), span)


def _compare(low: Lowering, node: ast.Compare) -> Node:
    symbols = tuple([_COMPARISONS[type(op)] for op in node.ops])
    return ("cmp", low.expression(node.left), symbols, low.expressions(node.comparators))


def _choice(low: Lowering, node: ast.IfExp) -> Node:
    test = node.test
    span = (test.lineno, test.col_offset, test.end_lineno, test.end_col_offset)
    return ("ifexp", low.expression(test), low.expression(node.body), low.expression(node.orelse), span)


def _text(low: Lowering, node: ast.JoinedStr) -> Node:
    return ("text", tuple([low.expression(v.value if isinstance(v, ast.FormattedValue) else v) for v in node.values]))


def _sequence(low: Lowering, node: ast.Tuple | ast.List | ast.Set) -> Node:
    return ("seq", low.expressions(node.elts))


def _dict(low: Lowering, node: ast.Dict) -> Node:
    return ("dict", tuple([low.expression(key) for key in node.keys]), low.expressions(node.values))


def _subscript(low: Lowering, node: ast.Subscript) -> Node:
    return ("sub", low.expression(node.value), low.expression(node.slice))


def _lambda(low: Lowering, node: ast.Lambda) -> Node:
    line = node.body.lineno
    return ("fn", low.function(node, "<lambda>", lambda: (("return", line, low.expression(node.body)),), ()))


def _comprehension(low: Lowering, node: Any) -> Node:
    elements = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
    loops = tuple([(target(low, g.target), low.expression(g.iter), low.expressions(g.ifs)) for g in node.generators])
    return ("comp", low.expressions(elements), loops)


def _walrus(low: Lowering, node: ast.NamedExpr) -> Node:
    return ("bind", node.target.id, low.expression(node.value))


def _yield(low: Lowering, node: ast.Yield) -> Node:
    return ("yield", low.expression(node.value))


def _await(low: Lowering, node: ast.Await) -> Node:
    return low.expression(node.value)


def _star(low: Lowering, node: ast.Starred) -> Node:
    return ("star", low.expression(node.value))


def _many(low: Lowering, node: ast.expr) -> Node:
    parts = [child for child in children(node) if isinstance(child, ast.expr)]
    return ("many", low.expressions(parts))


def _slice(low: Lowering, node: ast.Slice) -> Node:
    """With its text, where that is all of numbers: ``:-6``."""
    text = ast.unparse(node)
    plain = text.replace(":", "").replace("-", "").isdigit()
    return (*_many(low, node), text) if plain else _many(low, node)


EXPRESSIONS: Lowerers = {
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
    ast.Slice: _slice,
    ast.FormattedValue: _many,
}
for _late in ("TemplateStr", "Interpolation"):  # Python 3.14
    if hasattr(ast, _late):
        EXPRESSIONS[getattr(ast, _late)] = _many
SYMBOLS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.BitOr: "|",
    ast.BitAnd: "&", ast.Pow: "**", ast.MatMult: "@",
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Is: "is",
    ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip


def target(low: Lowering, node: ast.expr) -> Node:
    if isinstance(node, ast.Name):
        if not low.prefix:
            low.stored.add(node.id)
        return ("name", node.id)
    if isinstance(node, ast.Attribute):
        low.stored.add(node.attr)
    if isinstance(node, ast.Tuple | ast.List):
        return ("seq", tuple([target(low, element) for element in node.elts]))
    if isinstance(node, ast.Starred):
        return ("star", target(low, node.value))
    return low.expression(node)
