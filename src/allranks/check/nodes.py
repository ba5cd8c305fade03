"""The nodes of a syntax tree, as many rules ask for them: what is below a node is found once, and kept with it."""

from __future__ import annotations

import ast
from collections.abc import Sequence


class _Fields(dict[type[ast.AST], tuple[str, ...]]):
    """The fields of a kind of node that may hold nodes. Whether a name is read or stored (``ctx``) is none."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        fields = () if kind is ast.Constant else tuple(f for f in kind._fields if f not in ("ctx", "id"))
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
            if isinstance(value, ast.AST):
                kept.append(value)
            elif isinstance(value, list):
                kept.extend([each for each in value if isinstance(each, ast.AST)])
        node.__dict__["below"] = kept
    return kept


def walk(node: ast.AST) -> Sequence[ast.AST]:
    """Return ``node`` and all that is below it, level by level, as `ast.walk` yields them."""
    found = [node]
    for each in found:
        found.extend(children(each))
    return found
