"""A variable that one rank alone changes in a function, where every rank then meets the others by it.

Whether a loop of steps is left by it, the interpreted program tells (AR209).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from allranks.check.sources.source import File
from allranks.check.tree.one_rank import Parted, has_guards, holds_on_one, is_for_all, sends
from allranks.check.tree.origins import function_called
from allranks.check.tree.syntax import function_of, inside, leaves, nodes_in, own, tail_of, variables

_MEETS = re.compile(r"^_?(barrier|wait_for_everyone|all_?reduce\w*|all_?gather\w*|sync_global_devices|save_state)$")
# What gathers a model that is in parts, by its name; and whether there is one.
_SAVES = re.compile(r"^_?save_\w*(checkpoint|sharded|optimizer)")
_IN_PARTS = re.compile(r"FSDP|FullySharded|fully_shard|StateDictType|deepspeed")


def decided_by_one(scope: ast.AST, file: File) -> Iterator[Parted]:
    """Yield the calls in which the ranks meet under a condition that hangs on what one of them alone changes in
    ``scope``: a variable that has else the value it began with."""
    if not has_guards(file):
        return
    nodes = own(scope)
    guards = [at for at in nodes if isinstance(at, ast.If) and holds_on_one(at.test)]
    for branch in (at for at in nodes if isinstance(at, ast.If) and guards and not leaves(at.body)):
        for use in _asked_in(branch.test):
            guard = _changed_by(use, branch, guards, file)
            meeting = _met_in(branch.body, file) if guard is not None and is_for_all(use, guard, file) else None
            if guard is not None and meeting is not None:
                yield Parted(use.id, guard, meeting, guard.test)
                break


def _asked_in(test: ast.expr) -> Iterator[ast.Name]:
    """Yield what a condition looks at, but for what it hands to a call, which may ask the others."""
    todo: list[ast.AST] = [test]
    while todo:
        at = todo.pop()
        if isinstance(at, ast.Name):
            yield at
        elif isinstance(at, ast.BoolOp | ast.UnaryOp | ast.Compare | ast.BinOp):
            todo += ast.iter_child_nodes(at)


def _changed_by(use: ast.Name, branch: ast.stmt, guards: Iterable[ast.If], file: File) -> ast.If | None:
    """Return the guard in which one rank alone changes what is asked; None if there is none, if others change it too,
    or if anybody tells them."""
    nodes = own(function_of(use, file) or file.tree)
    stored = [at for at in nodes if isinstance(at, ast.Name) and isinstance(at.ctx, ast.Store) and at.id == use.id]
    for guard in guards:
        alone = nodes_in(guard.body)
        if branch in alone or not any(at in alone for at in stored):
            continue
        others = [at for at in stored if at not in alone and not _is_of_another_round(at, guard, file)]
        begins = all(_begins(at, nodes) and at.lineno < guard.lineno for at in others)
        told = any(isinstance(at, ast.Call) and sends(at) and use.id in variables(at) for at in nodes)
        if begins and not told:
            return guard
    return None


def _is_of_another_round(stored: ast.AST, guard: ast.If, file: File) -> bool:
    """Whether whoever comes there goes on to the next round of the loop around, and not to ``guard``."""
    around = {id(at) for at, _ in inside(guard, file)}
    for parent, child in inside(stored, file):
        if isinstance(parent, ast.If) and child in parent.body and id(parent) not in around:
            return isinstance(parent.body[-1], ast.Continue)
    return False


def _begins(stored: ast.AST, nodes: Sequence[ast.AST]) -> bool:
    """Whether a variable is given a constant there: all begin alike."""
    for at in nodes:
        if isinstance(at, ast.AnnAssign) and at.target is stored:
            return at.value is None or _is_plain(at.value)
        for target in at.targets if isinstance(at, ast.Assign) else ():
            assert isinstance(at, ast.Assign)
            if target is stored:
                return _is_plain(at.value)
            if isinstance(target, ast.Tuple) and stored in target.elts:
                value = at.value
                if not isinstance(value, ast.Tuple) or len(value.elts) != len(target.elts):
                    return False
                return _is_plain(value.elts[target.elts.index(stored)])
    return False


def _is_plain(value: ast.expr) -> bool:
    """``0``, ``-1``, ``float("inf")``, ``math.inf``."""
    value = value.operand if isinstance(value, ast.UnaryOp) else value
    if isinstance(value, ast.Call):
        return tail_of(value) in ("float", "int") and all(isinstance(at, ast.Constant) for at in value.args)
    return isinstance(value, ast.Constant) or (isinstance(value, ast.Attribute) and value.attr == "inf")


def _met_in(body: Iterable[ast.AST], file: File) -> ast.Call | None:
    """Return the first call of a block in which the ranks meet, or that leads to one in a function of this file."""
    patterns = (_MEETS, _SAVES) if _IN_PARTS.search(file.text) else (_MEETS,)
    for call in (at for at in nodes_in(body) if isinstance(at, ast.Call)):
        function = function_called(call, file) or _nested(call, file)
        inner = own(function) if function is not None and function is not function_of(call, file) else ()
        names = [tail_of(at) for at in (call, *inner) if isinstance(at, ast.Call)]
        if any(pattern.search(name) for pattern in patterns for name in names):
            return call
    return None


def _nested(call: ast.Call, file: File) -> ast.AST | None:
    """Return the function that is defined in the one around a call and bears the name of what is called."""
    around = function_of(call, file)
    inner = own(around) if around is not None else ()
    return next((at for at in inner if isinstance(at, ast.FunctionDef) and at.name == ast.unparse(call.func)), None)
