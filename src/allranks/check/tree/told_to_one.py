"""Objects that one rank alone tells how the training goes, where every rank goes by what they say afterwards: whether
to stop, how much a part of the loss counts, what the learning rate is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File, parse
from allranks.check.tree.one_rank import Parted, has_guards, holds_on_one, is_alone, is_for_all, on_one, sends
from allranks.check.tree.syntax import (
    Function,
    arguments,
    asks_rank,
    class_of,
    function_of,
    inside,
    is_constant,
    leaves,
    name_of,
    nodes_in,
    own,
    tail_of,
    variables,
)
from allranks.findings import Place

_CLASS = re.compile(r"^_?[A-Z]")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_Loop = ast.For | ast.AsyncFor | ast.While
_SCHEDULES = "torch.optim.lr_scheduler."
# Methods that change nothing, on whatever object.
_READS = ("state_dict", "get_last_lr")
_BEGINS = ("__init__", "__post_init__")


@dataclass(frozen=True, slots=True)
class Told:
    """``kind``: the class of the object, and ``method``: what one rank alone calls; both are empty where it stores
    something there itself, but for an attribute of ``self``. ``asked``: the part, or the method without arguments, that
    every rank goes by in ``loop``; ``leaves``: the loop ends by it."""

    parted: Parted
    kind: str
    method: str
    asked: str
    leaves: bool
    loop: _Loop


def told_to_one(file: File) -> Iterator[Told]:
    """Yield what every rank goes by, where one rank alone changes it, and nothing else does."""
    yield from _of_objects(file)
    yield from _of_attributes(file)


def told_at(place: Place, lines: Sequence[str]) -> Told | None:
    """Return what `told_to_one` has found at a place of a file with these lines."""
    tree = parse(text := "\n".join(lines))
    file = File(place.path, text, tree) if isinstance(tree, ast.Module) else None
    return next((one for one in told_to_one(file) if file.place(one.parted.use) == place), None) if file else None


def _of_objects(file: File) -> Iterator[Told]:
    """Yield where one rank alone calls a method of an object, or stores something in it."""
    done = set[str]()
    for branch, node, thing in _told(file):
        if (name := ast.unparse(thing)) in done:
            continue
        kind, used = _made(thing, branch, file), _used(thing, branch, file)
        if not kind or kind.startswith(_SCHEDULES) or (kind == "dict" and isinstance(node, ast.Call)):
            continue
        stores = not isinstance(node, ast.Call)
        method = "" if stores else "__call__" if node.func is thing else tail_of(node)  # type: ignore[attr-defined]
        for use in used:
            found = None if stores and _part(use) != _part(node) else _goes_by(use, branch, file)
            if found is not None:
                done.add(name)
                parted = Parted(ast.unparse(_with_call(use, file)), node, use, branch.test)
                yield Told(parted, "" if stores else kind.rpartition(".")[2], method, _part(use), found[1], found[0])
                break


def _of_attributes(file: File) -> Iterator[Told]:
    """Yield attributes that one rank alone sets, where every rank leaves a loop by them, and nothing else sets them."""
    stored: dict[str, list[ast.Attribute]] = {}
    for at in file.kinds.get(ast.Attribute, ()) if has_guards(file) else ():
        assert isinstance(at, ast.Attribute)
        if isinstance(at.ctx, ast.Store):
            stored.setdefault(at.attr, []).append(at)
    for name, stores in stored.items():
        later = [at for at in stores if not _is_beginning(at, file)]
        guards = [on_one(at, file) for at in later]
        if (
            len(later) in (0, len(stores))
            or any(guard is None for guard in guards)
            or not all(map(_is_own_part, stores))
        ):
            continue
        loads = [at for at in file.kinds[ast.Attribute] if at.attr == name and isinstance(at.ctx, ast.Load)]  # type: ignore[attr-defined]
        if any(sends(call) for at in loads for call in _calls_around(at, file)):
            continue
        for use in filter(_is_own_part, loads):
            assert isinstance(use, ast.Attribute)
            if class_of(use, file) is class_of(later[0], file) and (found := _goes_by(use, None, file)) and found[1]:
                parted = Parted(ast.unparse(use), later[0], use, guards[0])  # type: ignore[arg-type]
                yield Told(parted, "self", "", name, True, found[0])
                break


def scheduled_on_one(file: File) -> Iterator[Parted]:
    """Yield schedules of the learning rate that every rank makes, and one rank alone takes a step of."""
    for branch, call, thing in _told(file):
        if isinstance(call, ast.Call) and tail_of(call) == "step" and call.func is not thing:
            steps = [at for at in _used(thing, branch, file) if at.attr == "step"]  # type: ignore[attr-defined]
            in_loop = any(isinstance(p, _LOOPS) for p, _ in inside(branch, file))
            if _made(thing, branch, file).startswith(_SCHEDULES) and not steps and in_loop:
                yield Parted(ast.unparse(thing), call, call, branch.test)


def _told(file: File) -> Iterator[tuple[ast.If, ast.AST, ast.expr]]:
    """Yield the branches that one rank alone takes, what changes an object in them (a call, or what is stored there),
    and the variable or attribute that it is in."""
    for branch in file.kinds.get(ast.If, ()) if has_guards(file) else ():
        assert isinstance(branch, ast.If)
        for node in nodes_in(branch.body) if holds_on_one(branch.test) else ():
            things: list[ast.AST] = []
            if isinstance(node, ast.Call):
                things = [node.func, getattr(node.func, "value", node)]
            elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
                things = [node.value]
            yield from ((branch, node, at) for at in things if isinstance(at, ast.Name) or _is_own_part(at))  # type: ignore[misc]


def _is_own_part(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _is_beginning(store: ast.Attribute, file: File) -> bool:
    """A truth or a number is stored where the object is made: what is None there is made later, or never."""
    function, value = function_of(store, file), _stored_in(store, file)
    constant = isinstance(value, ast.Constant) and value.value is not None
    return constant and function is not None and function.name in _BEGINS


def _stored_in(target: ast.AST, file: File) -> ast.expr | None:
    """Return what an assignment stores in ``target``, which may be one of several in a row."""
    above = next(file.parents(target), None)
    if isinstance(above, ast.Assign | ast.AnnAssign):
        return above.value
    row = next(file.parents(above), None) if isinstance(above, ast.Tuple) else None
    value = row.value if isinstance(row, ast.Assign) else None
    if not isinstance(above, ast.Tuple) or not isinstance(value, ast.Tuple) or len(value.elts) != len(above.elts):
        return None
    return value.elts[above.elts.index(target)]  # type: ignore[arg-type]


def _part(node: ast.AST) -> str:
    """Return the name of an attribute, or the key of an entry."""
    if isinstance(node, ast.Attribute):
        return node.attr
    key = node.slice if isinstance(node, ast.Subscript) else None
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""


def _with_call(use: ast.expr, file: File) -> ast.AST:
    above = next(file.parents(use), None)
    return above if isinstance(above, ast.Call) and above.func is use else use


def _calls_around(node: ast.AST, file: File) -> list[ast.Call]:
    return [p for p, _ in inside(node, file) if isinstance(p, ast.Call)]


def _places(thing: ast.expr, branch: ast.If, file: File) -> list[ast.Name | ast.Attribute]:
    """Return where a variable of a function stands, or an attribute of a class; nothing if others may reach it."""
    if isinstance(thing, ast.Attribute):
        kind = class_of(branch, file)
        named = [at for at in file.kinds.get(ast.Attribute, ()) if isinstance(at, ast.Attribute)]
        places = [at for at in named if at.attr == thing.attr]
        ours = all(_is_own_part(at) and class_of(at, file) is kind for at in places)
        return [*places] if ours and kind is not None else []
    scope: Function | ast.Module = function_of(branch, file) or file.tree
    name = ast.unparse(thing)
    mine = [at for at in own(scope) if isinstance(at, ast.Name) and at.id == name]
    every = sum(isinstance(at, ast.Name) and at.id == name for at in walk(scope))
    return [*mine] if len(mine) == every else []


def _made(thing: ast.expr, branch: ast.If, file: File) -> str:
    """Return the class that every rank makes an object of for a variable, once; empty of all others."""
    stored = [at for at in _places(thing, branch, file) if not isinstance(at.ctx, ast.Load)]
    made = _stored_in(stored[0], file) if len(stored) == 1 and not is_alone(stored[0], file) else None
    if isinstance(made, ast.Dict) or (isinstance(made, ast.Call) and tail_of(made) == "dict"):
        return "dict"
    if not isinstance(made, ast.Call) or not _CLASS.search(tail_of(made)):
        return ""
    return name_of(made, file) or tail_of(made)


def _used(thing: ast.expr, branch: ast.If, file: File) -> list[ast.expr]:
    """Return the parts of an object that every rank reads, or asks it for without telling it anything, but those that
    others than the one rank store; nothing if any of them may do more."""
    used, stored = list[ast.expr](), set[str]()
    for at in _places(thing, branch, file):
        if not isinstance(at.ctx, ast.Load) or on_one(at, file) is not None:
            continue
        part = next(file.parents(at), None)
        if not isinstance(part, ast.Attribute | ast.Subscript) or part.value is not at or not _part(part):
            return []
        if not isinstance(part.ctx, ast.Load):
            stored.add(_part(part))
            continue
        call = next(file.parents(part), None)
        asks = isinstance(call, ast.Call) and call.func is part
        if asks and (arguments(call) or isinstance(next(file.parents(call), None), ast.Expr)):  # type: ignore[arg-type]
            return []
        if any(sends(one) for one in _calls_around(part, file)):
            return []
        if _part(part) not in _READS:
            used.append(part)
    return [part for part in used if _part(part) not in stored]


def _goes_by(use: ast.expr, branch: ast.If | None, file: File) -> tuple[_Loop, bool] | None:
    """Return the loop in which every rank goes by what it reads there, and whether it is to leave it. ``branch``: what
    one rank alone takes, if it is a part of the same function."""
    loop = next((p for p, _ in inside(use, file) if isinstance(p, _LOOPS)), None)
    for parent, child in inside(use, file):
        if isinstance(parent, ast.While) and child is parent.test:
            return (parent, True) if not is_alone(parent, file) and not is_constant(parent.test, True) else None
        if isinstance(parent, ast.If):
            left = child is parent.test and leaves(parent.body) and not isinstance(parent.body[-1], ast.Continue)
            return (loop, True) if left and loop is not None and _is_for_all(use, branch, file) else None
        if isinstance(parent, ast.Assign):
            weighs = any(_is_learned_by(target, parent, file) for target in parent.targets)
            return (loop, False) if weighs and loop is not None and _is_for_all(use, branch, file) else None
    return None


def _is_for_all(use: ast.expr, branch: ast.If | None, file: File) -> bool:
    """Every rank may come to ``use``; where one rank alone is told, may be another method."""
    if branch is not None and function_of(use, file) is function_of(branch, file):
        return is_for_all(use, branch, file)
    asked = (getattr(p, "test", p) for p, _ in inside(use, file) if isinstance(p, ast.BoolOp | ast.If))
    return not is_alone(use, file) and not any(map(asks_rank, asked))


def _is_learned_by(target: ast.expr, stored: ast.Assign, file: File) -> bool:
    """A backward pass goes from a variable."""
    if not isinstance(target, ast.Name):
        return False
    calls = (at for at in own(function_of(stored, file) or file.tree) if isinstance(at, ast.Call))
    return any(tail_of(call) == "backward" and target.id in variables(call) for call in calls)
