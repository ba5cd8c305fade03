"""Seeds to which the rank on the node is added."""

from __future__ import annotations

import ast
import re

from allranks.check.sources.source import File
from allranks.check.tree.origins import origins, values
from allranks.check.tree.syntax import tail_of

# What holds a seed, and what sets one.
_SEED = re.compile(r"(^|_)seed$")
_SETS = re.compile(r"^(set_)?(random_)?seed(_all|_everything)?$|^manual_seed(_all)?$|^set_(all_)?seeds?$")


def seed_of(node: ast.AST) -> ast.expr | None:
    """Return the sum that a seed is set to, or what is added to one: ``seed += rank``, ``manual_seed(seed + rank)``."""
    if isinstance(node, ast.AugAssign):
        return node.value if isinstance(node.op, ast.Add) and _SEED.search(tail_of(node.target)) else None
    seeds = isinstance(node, ast.Call) and _SETS.search(tail_of(node)) and node.args
    given_one = node.args[0] if seeds and isinstance(node, ast.Call) else None
    return given_one if isinstance(given_one, ast.BinOp) and isinstance(given_one.op, ast.Add) else None


def is_of_node(seed: ast.expr, file: File) -> bool:
    """Whether the rank on the node is added as it is, and nothing that tells the nodes apart."""
    added = [seed]
    while isinstance(added[-1], ast.BinOp) and isinstance(added[-1].op, ast.Add):
        whole = added.pop()
        added += [whole.right, whole.left] if isinstance(whole, ast.BinOp) else []
    told = origins(seed, file) & {"global", "node", "group"}
    return not told and any(origins(part, file) == {"local"} and not _is_of_object(part, file) for part in added)


def _is_of_object(part: ast.expr, file: File) -> bool:
    """What an object gives when it is asked, as an iterator that was made with the rank, need be no rank."""
    asked = (one.func for one in (part, *values(part, file)) if isinstance(one, ast.Call))
    objects = (of.value for of in asked if isinstance(of, ast.Attribute) and isinstance(of.value, ast.Name))
    return any(origins(of, file) for of in objects)
