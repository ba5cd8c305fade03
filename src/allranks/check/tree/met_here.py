"""Where a file tells the processes to meet on this host: those of another one would never come."""

from __future__ import annotations

import ast

from allranks.check.sources.source import File
from allranks.check.tree.syntax import blocks, function_of, inside

_HERE = ("localhost", "127.0.0.1")


def is_met_here(node: ast.AST, file: File) -> bool:
    """Whether MASTER_ADDR is set to this host beside ``node``, or beside what it stands in."""
    above = (block for parent, child in inside(node, file) for block in blocks(parent) if child in block)
    told = (at.value for block in above for at in block if isinstance(at, ast.Assign) and _is_address(at))
    return any(_is_here(value, function_of(node, file)) for value in told)


def _is_here(value: ast.expr, function: ast.AST | None) -> bool:
    """It is this host, or a parameter that is, unless a caller knows better: ``addr or os.environ.get(...)``"""
    first = value.values[0] if isinstance(value, ast.BoolOp) else value
    if isinstance(first, ast.Name) and isinstance(function, ast.FunctionDef):
        listed = function.args.args[len(function.args.args) - len(function.args.defaults) :]
        by_default = {one.arg: default for one, default in zip(listed, function.args.defaults, strict=True)}
        first = by_default.get(first.id, first)
    return isinstance(first, ast.Constant) and first.value in _HERE


def _is_address(assign: ast.Assign) -> bool:
    return "MASTER_ADDR" in ast.unparse(assign.targets[0])
