"""What one rank alone binds, resets or empties in a file, and all ranks then go by."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import function_called, values
from allranks.check.tree.syntax import (
    asks_rank,
    blocks,
    function_of,
    inside,
    is_constant,
    leaves,
    own,
    rank_guard,
    tail_of,
    variables,
)
from allranks.check.tree.words import says

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BRANCHES = (ast.If, ast.IfExp, ast.While)
# What is true on one rank, as people call it; a number that is false on one rank.
_IS_ONE = (
    *("main", "master", "chief", "primary", "zero", "rank0", "rank_0", "first", "should_log", "should_save"),
    "logging_process",
)
_NUMBER = ("rank", "index", "id", "rank()", "index()", "id()")
_OF_TENSOR = ("shape", "ndim", "tensor", "matrix", "lora")


@dataclass(frozen=True, slots=True)
class Parted:
    """``use`` is reached by every rank; ``made`` by one alone, where ``guard`` holds."""

    name: str
    made: ast.AST
    use: ast.AST
    guard: ast.expr


def holds_on_one(test: ast.expr) -> bool:
    """Say whether a condition holds on one rank (of all, or of each node), by the names in it."""
    if isinstance(test, ast.BoolOp):
        return any(map(holds_on_one, test.values))
    if isinstance(test, ast.UnaryOp):
        return isinstance(test.op, ast.Not) and asks_rank(test.operand) and ast.unparse(test).lower().endswith(_NUMBER)
    if isinstance(test, ast.Compare):
        first = isinstance(test.ops[0], ast.Eq) and is_constant(test.comparators[0], 0)
        few = isinstance(test.ops[0], ast.In) and ast.unparse(test.comparators[0]) in ("[-1, 0]", "(-1, 0)")
        counts = isinstance(test.left, ast.BinOp) or any(word in ast.unparse(test.left) for word in _OF_TENSOR)
        return (first or few) and not counts and asks_rank(test.left)
    return asks_rank(test) and any(word in tail_of(test).lower() for word in _IS_ONE)


def on_one(node: ast.AST, file: File) -> ast.expr | None:
    """Return the condition under which ``node`` runs on one rank alone: of an If around it (the outermost), or of one
    above it in its function that sends the others away; None if there is none."""
    around = [p for p, child in inside(node, file) if isinstance(p, ast.If) and child in p.body]
    found = next((p.test for p in reversed(around) if holds_on_one(p.test)), None)
    function = function_of(node, file)
    if found is not None or function is None:
        return found
    above = (s for s in function.body if s.lineno < getattr(node, "lineno", 0) and isinstance(s, ast.If))
    found = next((s.test for s in above if leaves(s.body) and _holds_on_others(s.test)), None)
    return found or next((d for d in function.decorator_list if holds_on_one(d)), None)


def _holds_on_others(test: ast.expr) -> bool:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return holds_on_one(test.operand)
    unequal = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotEq | ast.Gt)
    return unequal and is_constant(test.comparators[0], 0) and asks_rank(test.left)  # type: ignore[attr-defined]


def bound_on_one(scope: ast.AST, file: File) -> Iterator[Parted]:
    """Yield the names of a function or module that one rank alone binds, where every rank first uses them."""
    if not has_guards(file):
        return
    nodes = own(scope)
    bound: dict[str, list[ast.AST]] = {}
    for node in nodes:
        for name in _bound_by(node, file):
            bound.setdefault(name, []).append(node)
    known = _parameters(scope) if isinstance(scope, _FUNCTIONS) else set()
    guards = {name: _guards(found, file) for name, found in bound.items() if name not in known}
    guards = {name: found for name, found in guards.items() if found}
    if not guards or any(isinstance(at, ast.Call) and tail_of(at) in ("locals", "globals") for at in nodes):
        return
    uses = (at for at in nodes if isinstance(at, ast.Name) and isinstance(at.ctx, ast.Load) and at.id in guards)
    told: list[ast.If] = []
    for use in sorted(uses, key=lambda at: (at.lineno, at.col_offset)):
        found = guards.get(use.id)
        guard = found and next((g for g in found if (g.end_lineno or 0) < use.lineno), None)
        if not guard or guard in told:
            continue
        something = [at for at in bound[use.id] if not (_is_none(at, file) and _wants_it(use, nodes, file))]
        if _is_bound_otherwise(something, guard, use, file):
            continue
        if is_for_all(use, guard, file) and not _is_of_comprehension(use, file):
            told.append(guard)
            yield Parted(use.id, guard, use, guard.test)


def has_guards(file: File) -> bool:
    """Say whether anything in a file stands under a condition that holds on one rank."""
    branches = file.kinds.get(ast.If, ())
    return file.once("guards for one", file.tree, lambda _: any(holds_on_one(at.test) for at in branches))  # type: ignore[attr-defined]


def _bound_by(node: ast.AST, file: File) -> list[str]:
    """Return the names that a node binds in its function; those of a comprehension stay in it."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        above = next(file.parents(node), None)
        if isinstance(above, ast.AnnAssign) and above.value is None:
            return []
        return [] if any(isinstance(p, ast.comprehension) for p, _ in inside(node, file)) else [node.id]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    if isinstance(node, ast.Global | ast.Nonlocal):
        return node.names
    named = isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar))
    return [node.name] if named and node.name else []  # type: ignore[attr-defined]


def _is_none(bound: ast.AST, file: File) -> bool:
    above = next(file.parents(bound), None)
    return isinstance(above, ast.Assign) and is_constant(above.value, None)


def _wants_it(use: ast.Name, nodes: Sequence[ast.AST], file: File) -> bool:
    """It must be something, where it is used: a part of it is taken, and nobody asks whether it is there."""
    above = next(file.parents(use), None)
    takes = isinstance(above, ast.Attribute | ast.Subscript) and above.value is use
    asked = (at.test for at in nodes if isinstance(at, (*_BRANCHES, ast.Assert)))
    return takes and not any(isinstance(at, ast.Name) and at.id == use.id for test in asked for at in walk(test))


def _is_of_comprehension(use: ast.Name, file: File) -> bool:
    """It is a comprehension's own variable."""
    made = (part for p, _ in inside(use, file) for part in getattr(p, "generators", ()))
    return any(isinstance(at, ast.Name) and at.id == use.id for part in made for at in walk(part.target))


def _parameters(function: ast.AST) -> set[str]:
    arguments = function.args  # type: ignore[attr-defined]
    return {at.arg for at in walk(arguments) if isinstance(at, ast.arg)}


def _guards(bound: Sequence[ast.AST], file: File) -> list[ast.If]:
    """Return the conditions for one rank around what binds a name."""
    found = []
    for node in bound:
        around = [p for p, child in inside(node, file) if isinstance(p, ast.If) and child in p.body]
        found += [p for p in around[::-1] if holds_on_one(p.test)][:1]
    return found


def goes_on(made: ast.AST, read: ast.AST, file: File) -> bool:
    """A process that comes to ``made`` may come to ``read`` afterwards: no other branch, no return between."""
    for parent, child in inside(made, file):
        block = next((b for b in blocks(parent) if child in b), None)
        if any(at is read for at in walk(parent)):
            return block is None or any(at is read for part in block for at in walk(part))
        if block is not None and leaves(block):
            return False
    return True


def _is_bound_otherwise(bound: list[ast.AST], guard: ast.If, use: ast.Name, file: File) -> bool:
    """Those who are not in ``guard`` may bind the name before ``use``: elsewhere than in another branch that whoever
    comes to the guard does not take."""
    loops = {id(p) for p, _ in inside(use, file) if isinstance(p, ast.For | ast.While)}
    branches = [(p, child) for p, child in inside(guard, file) if isinstance(p, ast.If)]
    for node in bound:
        around = {id(p): child for p, child in inside(node, file)}
        if id(guard) in around and around[id(guard)] in guard.body:
            continue
        elsewhere = any(id(p) in around and (around[id(p)] in p.body) != (child in p.body) for p, child in branches)
        before = getattr(node, "lineno", 0) < use.lineno or not loops.isdisjoint(around)
        if before and not elsewhere and on_one(node, file) is None:
            return True
    return False


def is_for_all(use: ast.AST, guard: ast.If, file: File) -> bool:
    """Every rank that comes by ``guard`` may come to ``use``: nothing that the rank decides stands between."""
    if rank_guard(use, file) is not None or _others_leave(use, file) or not goes_on(guard, use, file):
        return False
    around = {id(p) for p in file.parents(guard)}
    alone = frozenset(_changed_in(guard))
    asked = [ast.unparse(p.test) for p, child in inside(guard, file) if isinstance(p, ast.If) and child in p.body]
    for parent, child in inside(use, file):
        if isinstance(parent, ast.Try) and id(parent) not in around:
            return False
        if isinstance(parent, ast.For) and child is not parent.iter and _is_filled_on_one(parent, file):
            return False
        if isinstance(parent, ast.BoolOp) and any(asks_rank(at) for at in parent.values if at is not child):
            return False
        if isinstance(parent, _BRANCHES) and child is not parent.test and id(parent) not in around:
            if _goes_by_rank(parent.test, file) or not alone.isdisjoint(_texts(parent.test)):
                return False
            if ast.unparse(parent.test) in asked and child not in getattr(parent, "body", ()):
                return False
    return True


def _is_filled_on_one(loop: ast.For, file: File) -> bool:
    """A loop goes over what is empty at first in its function, and what some ranks alone use until then."""
    nodes = own(function_of(loop, file) or file.tree)
    for name in variables(loop.iter):
        named = [at for at in nodes if isinstance(at, ast.Name) and at.id == name and at.lineno < loop.lineno]
        stored = next((at for at in reversed(named) if isinstance(at.ctx, ast.Store)), None)
        above = next(file.parents(stored), None) if stored is not None else None
        if isinstance(above, ast.Assign) and ast.unparse(above.value) in ("{}", "[]", "dict()", "list()", "set()"):
            used = [at for at in named if at.lineno > above.lineno]
            if used and all(rank_guard(at, file) is not None for at in used):
                return True
    return False


def _others_leave(use: ast.AST, file: File) -> bool:
    scope = function_of(use, file) or file.tree
    parts = (at for at in own(scope) if isinstance(at, ast.If) and at.lineno < getattr(use, "lineno", 0))
    return any(asks_rank(at.test) and (leaves(at.body) or (at.orelse and leaves(at.orelse))) for at in parts)


def _goes_by_rank(test: ast.expr, file: File) -> bool:
    """A condition is made of the rank, by the names in it or by what is stored under them."""
    named = (at for at in walk(test) if isinstance(at, ast.Name | ast.Attribute))
    return asks_rank(test) or any(asks_rank(value) for at in named for value in values(at, file))


def _changed_in(block: ast.AST) -> Iterator[str]:
    for at in walk(block):
        if isinstance(at, ast.Name | ast.Attribute) and isinstance(at.ctx, ast.Store):
            yield ast.unparse(at)
        elif isinstance(at, ast.Call) and isinstance(at.func, ast.Attribute):
            yield ast.unparse(at.func.value)


def _texts(node: ast.AST) -> Iterator[str]:
    return (ast.unparse(at) for at in walk(node) if isinstance(at, ast.Name | ast.Attribute))


def loaded_on_one(scope: ast.AST, file: File) -> Iterator[ast.Call]:
    """Yield the calls of a function with which one rank alone resumes a training, and the others do not."""
    calls = [at for at in own(scope) if isinstance(at, ast.Call)]
    for call in calls if has_guards(file) else ():
        guard = next((p for p, child in inside(call, file) if isinstance(p, ast.If) and child in p.body), None)
        if not _resumes(call, file) or guard is None or guard.orelse or not holds_on_one(guard.test):
            continue
        texts = [ast.unparse(guard.test), *(ast.unparse(part) for part in guard.body)]
        looks = any(says(tail_of(at), "held_out", "one_process") for part in guard.body for at in _calls(part))
        later = (at for at in calls if at.lineno > (guard.end_lineno or 0))
        shared = any(says(ast.unparse(at.func), "equalises") for at in later) or any(
            "broadcast" in one for one in texts
        )
        if not looks and not shared and any(says(one, "progress", "resumes") for one in texts):
            yield call


def _resumes(call: ast.Call, file: File) -> bool:
    """Whether a call fills a model or gives a restored state, or runs a method that does."""
    if tail_of(call) == "load_state_dict" or (says(tail_of(call), "resumes") and call.args):
        return True
    function = function_called(call, file) if tail_of(call) in ("load", "resume", "load_checkpoint") else None
    return function is not None and any(tail_of(at) == "load_state_dict" for at in _calls(function))


def _calls(node: ast.AST) -> list[ast.Call]:
    return [at for at in walk(node) if isinstance(at, ast.Call)]
