"""Where what a process has put in an order is dealt out to the processes afterwards."""

from __future__ import annotations

import ast

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tables.data import SAMPLERS
from allranks.check.tree.origins import function_called, reached
from allranks.check.tree.splits import Split, handed, splits
from allranks.check.tree.syntax import class_of, function_of, name_of, own, places_in, tail_of


def dealt_out_later(shuffle: ast.Call, data: str, file: File) -> int | None:
    """Return the line where what was shuffled is dealt out: below in the same function, or where its result is."""
    scope = function_of(shuffle, file) or file.tree
    if line := next((_line(split.node) for split in splits(scope, file) if _holds(split.source, shuffle)), None):
        return line
    if isinstance(scope, ast.FunctionDef) and (line := _dealt_by_callers(shuffle, scope, file)) is not None:
        return line
    in_place = data.startswith("self.") and tail_of(shuffle) == "shuffle"
    if in_place and (line := _dealt_by_methods(shuffle, data, file)) is not None:
        return line
    dealt = file.once("dealt out", scope, lambda it: _dealt(it, file))
    if not dealt:
        return None
    around = set(map(id, file.parents(shuffle)))
    names = {data}
    for node, read, written in file.once("stores", scope, _stores):
        if node.lineno >= shuffle.lineno and (not names.isdisjoint(read) or id(node) in around):
            names |= written
    if any(not names.isdisjoint(sent) for sent in file.once("sent", scope, _sent)):
        return None
    lines = (line for node, of in dealt if (line := _line(node)) and not names.isdisjoint(of))
    return next((line for line in lines if line > shuffle.lineno), None)


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))


def _holds(source: ast.AST, call: ast.Call) -> bool:
    """``permutation(n)[rank::world]``: who shuffles in place returns nothing to deal out."""
    return tail_of(call) != "shuffle" and any(at is call for at in walk(source))


def _dealt(scope: ast.AST, file: File) -> tuple[tuple[ast.AST, frozenset[str]], ...]:
    made = [split for split in (*splits(scope, file), *handed(scope, file)) if not _is_put_in_order(split, file)]
    parts = [(split.node, places_in(split.source)) for split in made]
    samplers = (at for at in own(scope) if isinstance(at, ast.Call) and name_of(at, file) in SAMPLERS and at.args)
    return (*parts, *((at, places_in(at.args[0])) for at in samplers))


def _is_put_in_order(split: Split, file: File) -> bool:
    """``sorted(rows)[rank::world]``, or what a function of this file that takes the part does first."""
    called = function_called(split.node, file) if isinstance(split.node, ast.Call) else None
    if split.how != "handed" or called is None:
        return _sorts(split.source)
    taken = {at.arg for at in walk(called.args) if isinstance(at, ast.arg)}
    return any(_sorts(at) and not taken.isdisjoint(places_in(at)) for at in own(called))


def _sorts(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and tail_of(node) in ("sorted", "natsorted", "sort")


def _dealt_by_callers(shuffle: ast.Call, scope: ast.FunctionDef, file: File) -> int | None:
    """``return order`` in a function of this file, and ``self.order()[rank::n]`` in another one."""
    above = next((p for p in file.parents(shuffle) if isinstance(p, ast.stmt)), None)
    kept = places_in(above.targets[0]) if isinstance(above, ast.Assign) else frozenset()
    returned = [at.value for at in own(scope) if isinstance(at, ast.Return) and at.value is not None]
    if above not in [p for p in own(scope) if isinstance(p, ast.Return)] and not any(
        kept & places_in(value) for value in returned
    ):
        return None
    for split in splits(file.tree, file):
        calls = (at for one in reached(split.source, file) for at in walk(one) if isinstance(at, ast.Call))
        if any(function_called(call, file) is scope for call in calls):
            return _line(split.node)
    return None


def _dealt_by_methods(shuffle: ast.Call, data: str, file: File) -> int | None:
    """``shuffle(self.files)`` in one method, and in another ``rows = load(self.files[0])``, ``rows[self.rank::n]``."""
    owner = class_of(shuffle, file)
    methods = [at for at in owner.body if isinstance(at, ast.FunctionDef)] if owner is not None else []
    dealt = {method.name: file.once("dealt out", method, lambda it: _dealt(it, file)) for method in methods}
    if not any(dealt.values()) or any(file.once("sent", method, _sent) for method in methods):
        return None
    kept, before = {data}, 0
    while len(kept) > before:
        before, reads = len(kept), {}
        for method in methods:
            reads[method.name] = set(kept)
            for _, read, written in file.once("stores", method, _stores):
                if not reads[method.name].isdisjoint(read):
                    reads[method.name] |= written
            kept |= {name for name in reads[method.name] if name.startswith("self.")}
    found = (node for name, parts in dealt.items() for node, of in parts if not reads[name].isdisjoint(of))
    return next((_line(node) for node in found), None)


def _stores(scope: ast.AST) -> tuple[tuple[ast.Assign, frozenset[str], frozenset[str]], ...]:
    """Return the assignments of a scope by line, with the names they read and those they store under."""
    nodes = sorted((n for n in own(scope) if isinstance(n, ast.Assign)), key=lambda n: n.lineno)
    return tuple((n, places_in(n.value), frozenset(ast.unparse(target) for target in n.targets)) for n in nodes)


def _sent(scope: ast.AST) -> tuple[frozenset[str], ...]:
    """Return the names in each broadcast of a scope: the order that rank 0 drew is sent to all."""
    return tuple(places_in(n) for n in own(scope) if isinstance(n, ast.Call) and "broadcast" in tail_of(n))
