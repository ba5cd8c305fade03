"""What every rank has made of what was gathered from all: it is the same everywhere before anybody sends it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.sources.source import File
from allranks.check.tree.syntax import function_of, own, rank_guard, tail_of, variables

_GATHERS = ("all_gather_object", "all_gather", "all_gather_into_tensor", "all_reduce")
_FILLS = ("update", "append", "extend", "add", "insert")


def is_of_gathered(name: ast.Name, file: File) -> bool:
    """Say whether every rank has made ``name`` of what a collective gave all of them, in the function around it."""
    function = function_of(name, file)
    alike = set[str]()
    above = [at for at in own(function) if getattr(at, "lineno", name.lineno) < name.lineno] if function else []
    for node in above:
        if isinstance(node, ast.Call) and tail_of(node) in _GATHERS and node.args:
            alike |= variables(node.args[0])
        for made, of in _made(node):
            if not alike.isdisjoint(variables(of)) and rank_guard(node, file) is None:
                alike.add(made)
            elif isinstance(node, ast.Assign):
                alike.discard(made)
    return name.id in alike


def _made(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the names that a node makes, or fills, and what of."""
    if isinstance(node, ast.Assign):
        yield from ((name, node.value) for target in node.targets for name in variables(target))
    elif isinstance(node, ast.For):
        yield from ((name, node.iter) for name in variables(node.target))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and tail_of(node) in _FILLS:
        yield from ((name, given) for name in variables(node.func.value) for given in node.args)
