"""The nodes of a syntax tree, as many rules ask for them: what is below a node is found once, and kept with it."""

from __future__ import annotations

import ast
from collections.abc import Sequence

# What these hold is text or a number, or, as an operator, says no more than the node that it belongs to.
_LEAVES = frozenset(
    (
        *("ctx", "op", "ops", "id", "attr", "arg", "asname", "module", "level", "type_comment", "kind", "conversion"),
        *("simple", "is_async", "kwd_attrs", "rest"),
    )
)


class _Fields(dict[type[ast.AST], tuple[str, ...]]):
    """The fields of a kind of node that may hold nodes."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        leaf = kind in (ast.Constant, ast.MatchSingleton, ast.Global, ast.Nonlocal)
        fields = () if leaf else tuple(f for f in kind._fields if f not in _LEAVES)
        self[kind] = fields
        return fields


_FIELDS = _Fields()


def children(node: ast.AST) -> Sequence[ast.AST]:
    """Return the nodes right below ``node``, in the order of their fields."""
    fields = _FIELDS[type(node)]
    if not fields:
        return ()
    kept: list[ast.AST] | None = node.__dict__.get("below")
    if kept is None:
        kept = []
        for field in fields:
            value = getattr(node, field, None)
            if value.__class__ is list:
                kept += value if None not in value else [each for each in value if each is not None]
            elif value is not None and value.__class__ is not str:
                kept.append(value)
        node.__dict__["below"] = kept
    return kept


def walk(node: ast.AST) -> Sequence[ast.AST]:
    """Return ``node`` and all that is below it, level by level, as `ast.walk` yields them."""
    found = [node]
    for each in found:
        if _FIELDS[each.__class__]:  # half of all nodes have nothing below
            found += children(each)
    return found
