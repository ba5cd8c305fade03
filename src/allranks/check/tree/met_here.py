"""Where a file tells the processes to meet on this host: those of another one would never come."""

from __future__ import annotations

import ast

from allranks.check.sources.source import File
from allranks.check.tree.syntax import blocks, inside

_HERE = ("localhost", "127.0.0.1")


def is_met_here(node: ast.AST, file: File) -> bool:
    """Whether MASTER_ADDR is set to this host beside ``node``, or beside what it stands in."""
    above = (block for parent, child in inside(node, file) for block in blocks(parent) if child in block)
    told = (at.value for block in above for at in block if isinstance(at, ast.Assign) and _is_address(at))
    return any(isinstance(value, ast.Constant) and value.value in _HERE for value in told)


def _is_address(assign: ast.Assign) -> bool:
    return "MASTER_ADDR" in ast.unparse(assign.targets[0])
