"""What one rank alone has, and the others None for, where every rank makes a model of it or receives into it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from allranks.check.sources.source import File
from allranks.check.tree.one_rank import Parted, has_guards, holds_on_one, is_for_all, on_one, sends
from allranks.check.tree.syntax import (
    Function,
    arguments,
    calls_of,
    function_of,
    is_constant,
    nodes_in,
    own,
    rank_guard,
    tail_of,
    variables,
)

_MODEL = re.compile(r"(?i)(^|_)(model|net|network|backbone|encoder|decoder|classifier|criterion|optimizer|tokenizer)$")
_LOADS = re.compile(r"^_*load_(state_dict|weights|parameters|pretrained\w*)$")


def made_of_one(scope: ast.AST, file: File) -> Iterator[Parted]:
    """Yield the names that one rank alone binds to something, and the others to None, where every rank makes a model of
    them, and nobody has sent them."""
    nodes = own(scope)
    for branch in _branches(nodes, file):
        for name, bound in _bound_to_something(branch):
            if not _is_none_elsewhere(name, branch, nodes):
                continue
            uses = _uses_behind(name, branch, nodes)
            use = next((one for one in uses if is_for_all(one, branch, file)), None)
            if use is not None:
                yield Parted(name, bound, use, branch.test)


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


def changed_on_one(scope: ast.AST, file: File) -> Iterator[Parted]:
    """Yield the states that every rank loads, of which one rank alone has set parts."""
    nodes = own(scope)
    for branch in _branches(nodes, file):
        parts = [at for at in nodes_in(branch.body) if isinstance(at, ast.Subscript) and isinstance(at.ctx, ast.Store)]
        others = {ast.unparse(at.value) for at in nodes_in(branch.orelse) if isinstance(at, ast.Subscript)}
        kept = {at.value.id: at for at in parts if isinstance(at.value, ast.Name)}
        own_ones = {
            t.id
            for at in nodes_in(branch.body)
            if isinstance(at, ast.Assign)
            for t in at.targets
            if isinstance(t, ast.Name)
        }
        for name, part in kept.items():
            if name in others or name in own_ones:
                continue
            uses = _loads_behind(name, branch, nodes)
            use = next((one for one in uses if is_for_all(one, branch, file)), None)
            if use is not None:
                yield Parted(name, part, use, branch.test)


def _branches(nodes: Sequence[ast.AST], file: File) -> list[ast.If]:
    """Return the branches that one rank alone takes."""
    return [at for at in nodes if isinstance(at, ast.If) and holds_on_one(at.test)] if has_guards(file) else []


def _loads_behind(name: str, branch: ast.If, nodes: Sequence[ast.AST]) -> Iterator[ast.expr]:
    """Yield where ``name`` is loaded into a model behind ``branch``; of what is sent, nowhere."""
    calls = [at for at in nodes if isinstance(at, ast.Call) and at.lineno > (branch.end_lineno or 0)]
    if any(sends(at) and name in variables(at) for at in calls):
        return
    for call in (at for at in calls if _LOADS.search(tail_of(at))):
        yield from (one for one in arguments(call) if isinstance(one, ast.Name) and one.id == name)


def _uses_behind(name: str, branch: ast.If, nodes: Sequence[ast.AST]) -> Iterator[ast.expr]:
    """Yield where a model is made of ``name`` behind ``branch``, before it is bound again; of what is sent, nowhere."""
    later = [at for at in nodes if getattr(at, "lineno", 0) > (branch.end_lineno or 0)]
    if any(isinstance(at, ast.Call) and sends(at) and name in variables(at) for at in later):
        return
    again = [at.lineno for at in _stored(name, later)]
    for at in later:
        yield from (use for use in _given_to_model(at, name) if not again or use.lineno < min(again))


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


def _given_to_model(statement: ast.AST, name: str) -> Iterator[ast.expr]:
    """Yield where ``statement`` stores under the name of a model what a call makes of ``name``."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return
    if any(_MODEL.search(tail_of(target)) for target in statement.targets):
        yield from (one for one in arguments(statement.value) if isinstance(one, ast.Name) and one.id == name)


def gives_something(function: Function) -> bool:
    given = (at.value for at in own(function) if isinstance(at, ast.Return))
    return any(value is not None and not isinstance(value, ast.Constant) for value in given)


def used_by_all(function: Function, file: File) -> Iterator[tuple[ast.Call, str]]:
    """Yield calls by all ranks whose result is then used as if they all had it, and what it is stored in."""
    for call in calls_of(file).get(function.name, ()):
        above, around = next(file.parents(call), None), function_of(call, file)
        if not (isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Name)) or around is None:
            continue
        name = above.targets[0].id
        if around is not function and rank_guard(call, file) is None and _is_used(name, above, around, file):
            yield call, name


def _is_used(name: str, stored: ast.Assign, around: Function, file: File) -> bool:
    """Whether a method of it is called afterwards, on all ranks, and nobody asks whether it is there."""
    nodes = list(own(around))
    if any(isinstance(at, ast.If | ast.IfExp | ast.Assert) and name in ast.unparse(at.test) for at in nodes):
        return False
    later = (at for at in nodes if isinstance(at, ast.Call) and at.lineno > stored.lineno)
    return any(
        isinstance(at.func, ast.Attribute)
        and isinstance(at.func.value, ast.Name)
        and at.func.value.id == name
        and rank_guard(at, file) is None
        for at in later
    )
