"""Attributes that one rank alone has, and a count that one alone raises, where every rank goes by them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.one_rank import Parted, has_guards, holds_on_one, is_alone, is_for_all, on_one, sends
from allranks.check.tree.syntax import (
    arguments,
    asks_rank,
    bases_of,
    function_of,
    inside,
    is_constant,
    leaves,
    nodes_in,
    own,
    tail_of,
)

_BRANCHES = (ast.If, ast.IfExp, ast.While, ast.Assert)
_GETS = ("__getattr__", "__getattribute__")
_ASKS = ("hasattr", "getattr", "setattr")
# Classes of packages that have few attributes, and none under the names that people give to what they make.
_PLAIN = frozenset(["", "object", "ABC", "abc.ABC", "torch.nn.Module"])
_RATES = re.compile(r"(?i)(^|_)(lr|learning_?rate)(_|$)")


def had_by_one(file: File) -> Iterator[Parted]:
    """Yield the attributes that one rank alone stores in ``self``, where every rank takes a part of them in another
    method of the class and nobody asks whether they are there."""
    for kind in file.kinds.get(ast.ClassDef, ()) if has_guards(file) else ():
        assert isinstance(kind, ast.ClassDef)
        attributes = _attributes(kind, file)
        alone = {name: made for name, places in attributes.items() if (made := _stored_by_one(places, file))}
        for name, (store, guard) in alone.items():
            places = attributes[name]
            if _is_known_otherwise(name, kind) or any(_is_asked(at, file) for at in places):
                continue
            uses = (at for at in places if _is_used(at, file) and function_of(at, file) is not function_of(store, file))
            use = next((at for at in uses if alone.keys().isdisjoint(_asked_before(at, file))), None)
            if use is not None:
                yield Parted(ast.unparse(use), store, use, guard)


def _stored_by_one(places: Sequence[ast.Attribute], file: File) -> tuple[ast.Attribute, ast.expr] | None:
    """Return where one rank alone stores an attribute, at first for certain, and the condition; None if others may."""
    stores = [(at, on_one(at, file)) for at in places if not isinstance(at.ctx, ast.Load)]
    later = [(at, guard) for at, guard in stores if not _is_beginning(at, file)]
    if not later or any(guard is None for _, guard in later):
        return None
    return later[0]  # type: ignore[return-value]


def _is_beginning(store: ast.Attribute, file: File) -> bool:
    """A truth that is no is stored where the object is made."""
    above, function = next(file.parents(store), None), function_of(store, file)
    no = isinstance(above, ast.Assign) and is_constant(above.value, False)
    return no and function is not None and function.name == "__init__"


def _asked_before(use: ast.Attribute, file: File) -> Iterator[str]:
    """Yield the attributes that the conditions ask for under which a method comes to ``use``."""
    function = function_of(use, file)
    above = (at for at in own(function) if isinstance(at, ast.If) and at.lineno < use.lineno) if function else ()
    around = (parent for parent, _ in inside(use, file) if isinstance(parent, _BRANCHES))
    for branch in (*around, *(at for at in above if leaves(at.body))):
        yield from (at.attr for at in walk(branch.test) if isinstance(at, ast.Attribute))


def _attributes(kind: ast.ClassDef, file: File) -> Mapping[str, list[ast.Attribute]]:
    """Return where the attributes of a class stand, if it has no others than it is given in this file."""
    found: dict[str, list[ast.Attribute]] = {}
    inherits = any(base not in _PLAIN for base in bases_of(kind, file)) or kind.keywords
    if not inherits and not any(getattr(at, "name", "") in _GETS for at in kind.body):
        for at in walk(kind):
            if isinstance(at, ast.Attribute) and isinstance(at.value, ast.Name) and at.value.id == "self":
                found.setdefault(at.attr, []).append(at)
    return found


def _is_known_otherwise(name: str, kind: ast.ClassDef) -> bool:
    """The class itself has it, or anything asks for it by its name."""
    for at in kind.body:
        targets = at.targets if isinstance(at, ast.Assign) else [at.target] if isinstance(at, ast.AnnAssign) else []
        if getattr(at, "name", "") == name or any(isinstance(t, ast.Name) and t.id == name for t in targets):
            return True
    asked = (at for at in walk(kind) if isinstance(at, ast.Call) and tail_of(at) in _ASKS)
    return any(not isinstance(part, ast.Constant) or part.value == name for at in asked for part in at.args[1:2])


def _is_asked(use: ast.Attribute, file: File) -> bool:
    """A condition asks for it, or others are told of it."""
    for parent, child in inside(use, file):
        if isinstance(parent, _BRANCHES) and child is parent.test:
            return True
        if isinstance(parent, ast.Call) and sends(parent) and child is not parent.func:
            return True
    return False


def _is_used(use: ast.Attribute, file: File) -> bool:
    """Whoever comes there, for certain with all others, takes a part of it."""
    above = next(file.parents(use), None)
    if not isinstance(above, ast.Attribute | ast.Subscript) or above.value is not use or is_alone(use, file):
        return False
    around = [parent for parent, _ in inside(use, file)]
    tested = [parent.test for parent in around if isinstance(parent, _BRANCHES)]
    of_rank = any(asks_rank(at) for test in tested for at in (test, *walk(test)))
    skipped = any(isinstance(at, ast.Try | ast.ExceptHandler | ast.Lambda | ast.BoolOp) for at in around)
    return isinstance(use.ctx, ast.Load) and not of_rank and not skipped and not _is_handed_on(use, file)


def _is_handed_on(use: ast.Attribute, file: File) -> bool:
    """The method around it is given to something that calls it when, and where, it likes: a process, a thread."""
    method = function_of(use, file)
    named = (at for at in file.kinds.get(ast.Attribute, ()) if method is not None and at.attr == method.name)  # type: ignore[attr-defined]
    above = ((at, next(file.parents(at), None)) for at in named)
    return any(not (isinstance(call, ast.Call) and call.func is at) for at, call in above)


def rated_by_one(scope: ast.AST, file: File) -> Iterator[Parted]:
    """Yield where every rank takes its learning rate by a count that one rank alone raises."""
    nodes = own(scope) if has_guards(file) else ()
    for branch in (at for at in nodes if isinstance(at, ast.If) and holds_on_one(at.test)):
        raised = (at.target for at in nodes_in(branch.body) if isinstance(at, ast.AugAssign))
        for name in (target.id for target in raised if isinstance(target, ast.Name)):
            use = _rate_by(name, nodes)
            if use is not None and _is_raised_there(name, branch, nodes) and is_for_all(use, branch, file):
                yield Parted(name, branch, use, branch.test)
                break


def _rate_by(name: str, nodes: Sequence[ast.AST]) -> ast.Call | None:
    """Return the call that makes a learning rate of a variable."""
    calls = (at for at in nodes if isinstance(at, ast.Call) and _RATES.search(tail_of(at)))
    return next((at for at in calls if any(ast.unparse(part) == name for part in arguments(at))), None)


def _is_raised_there(name: str, branch: ast.If, nodes: Sequence[ast.AST]) -> bool:
    """Nothing else stores it but what is above the branch."""
    alone = nodes_in(branch.body)
    stored = [at for at in nodes if isinstance(at, ast.Name) and at.id == name and not isinstance(at.ctx, ast.Load)]
    told = any(isinstance(at, ast.Call) and sends(at) and name in ast.unparse(at) for at in nodes)
    return not told and all(at in alone or at.lineno < branch.lineno for at in stored)
