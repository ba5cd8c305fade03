"""What one rank alone has, and the others None for, where every rank makes a model of it or receives into it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from allranks.check.sources.source import File
from allranks.check.tree.one_rank import has_guards, holds_on_one, is_for_all, on_one
from allranks.check.tree.syntax import (
    function_of,
    is_constant,
    nodes_in,
    own,
    rank_guard,
    variables,
)

_MODEL = re.compile(r"(?i)(^|_)(model|net|network|backbone|encoder|decoder|classifier|criterion|optimizer|tokenizer)$")
_LOADS = re.compile(r"^_*load_(state_dict|weights|parameters|pretrained\w*)$")


def none_elsewhere(use: ast.Name, file: File) -> ast.expr | None:
    """Return the condition under which one rank alone has something under a name, and the others None, where all come
    to ``use``: ``box = [path] if rank == 0 else None``."""
    nodes = own(function_of(use, file) or file.tree)
    before = [at for at in _stored(use.id, nodes) if at.lineno < use.lineno]
    if not before or on_one(use, file) is not None or rank_guard(use, file) is not None:
        return None
    last = max(before, key=lambda at: at.lineno)
    if isinstance(last.value, ast.IfExp):
        return last.value.test if holds_on_one(last.value.test) and is_constant(last.value.orelse, None) else None
    for branch in _branches(nodes, file):
        ends = branch.end_lineno or 0
        own_one = any(name == use.id for name, _ in _bound_to_something(branch)) and _is_none_elsewhere(
            use.id, branch, nodes
        )
        if last.lineno <= ends < use.lineno and own_one and is_for_all(use, branch, file):
            return branch.test
    return None


def _branches(nodes: Sequence[ast.AST], file: File) -> list[ast.If]:
    """Return the branches that one rank alone takes."""
    return [at for at in nodes if isinstance(at, ast.If) and holds_on_one(at.test)] if has_guards(file) else []


def _bound_to_something(branch: ast.If) -> Iterator[tuple[str, ast.AST]]:
    for at in nodes_in(branch.body):
        if isinstance(at, ast.Assign) and not is_constant(at.value, None):
            yield from ((target.id, at) for target in at.targets if isinstance(target, ast.Name))


def _is_none_elsewhere(name: str, branch: ast.If, nodes: Sequence[ast.AST]) -> bool:
    """Whether the other ranks have None: of the other branch, or of before."""
    if branch.orelse:
        stored = _stored(name, nodes_in(branch.orelse))
    else:
        stored = [at for at in _stored(name, nodes) if at.lineno < branch.lineno][-1:]
    return bool(stored) and all(is_constant(at.value, None) for at in stored)


def _stored(name: str, nodes: Iterable[ast.AST]) -> list[ast.Assign]:
    assignments = (at for at in nodes if isinstance(at, ast.Assign))
    return [at for at in assignments if any(name in variables(target) for target in at.targets)]
