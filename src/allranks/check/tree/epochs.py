"""Samplers of data that is gone over again: whether they shuffle, for what, and where the rounds are counted."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tables.data import HELD_OUT, LOADERS
from allranks.check.tree.origins import passed, values
from allranks.check.tree.syntax import (
    calls_of,
    function_of,
    inside,
    is_called,
    is_constant,
    keyword,
    name_of,
    own,
    speaks_of,
    tail_of,
    words_of,
)

SAMPLERS = (
    "torch.utils.data.DistributedSampler",
    "torchdata.stateful_dataloader.sampler.StatefulDistributedSampler",
)
_TRAINS = re.compile(r"(^|_)(is_?)?train", re.IGNORECASE)
_SETS = re.compile(r"_?set_(\w+_)?epoch")
_SAMPLER, _LOADER, _RUNS = re.compile(r"sampler$"), re.compile(r"(?i)loader|_dl$"), ("run", "fit")
_EPOCH = re.compile(r"epoch", re.IGNORECASE)
# Calls of whoever learns from what is in a loader, as they are named.
_LEARNS = re.compile(r"(?i)backward|step|train|update|fit|learn|loss|optim|engine|^(model|net|self)$")


def epoch_loop(file: File) -> ast.AST | None:
    """Return the first place of a file that counts epochs: a loop over them, or ``self.epochs += 1``."""
    return file.once("epoch loop", file.tree, lambda _: next(filter(is_epoch_loop, file.nodes), None))


def is_epoch_loop(node: ast.AST) -> bool:
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Add) and speaks_of(node.target, _EPOCH)
    return isinstance(node, ast.For) and (speaks_of(node.target, _EPOCH) or speaks_of(node.iter, _EPOCH))


def names_set_epoch(file: File) -> bool:
    """Whether code of a file, not a comment, names ``set_epoch``."""
    return "epoch" in file.text and file.once("names set_epoch", file.tree, lambda tree: sets_epoch(words_of(tree)))


def sets_epoch(names: Iterable[str]) -> bool:
    """Whether one of the names tells an epoch: ``set_epoch``, ``set_sampler_epoch``."""
    return any(map(_SETS.fullmatch, names))


def told_once(call: ast.Call, file: File) -> ast.AST | None:
    """Return what goes through all epochs, if a sampler is told its epoch once before, and nowhere else in the file: a
    loop that goes over the data itself, or the call of a library's."""
    if len(calls_of(file).get("set_epoch", ())) > 1 or not speaks_of(call.func, _SAMPLER):
        return None
    if any(isinstance(above, ast.For | ast.While | ast.AsyncFor) for above, _ in inside(call, file)):
        return None
    behind = (at for at in own(function_of(call, file) or file.tree) if getattr(at, "lineno", 0) > call.lineno)
    return next((at for at in behind if _is_round(at) or _is_run(at)), None)


def _is_round(node: ast.AST) -> bool:
    counted = isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and speaks_of(node.target, _EPOCH)
    inner = (at for at in own(node) if isinstance(at, ast.For)) if counted else ()
    return any(speaks_of(at.iter, _LOADER) for at in inner)


def _is_run(node: ast.AST) -> bool:
    """``trainer.run(loader, max_epochs=9)``"""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in _RUNS:
        return False
    return any(keyword(node, name) is not None for name in ("max_epochs", "num_epochs", "epochs"))


def is_held_out(call: ast.AST, file: File) -> bool:
    """Data that is only looked at: its order does not matter."""
    function = function_of(call, file)
    told = function is not None and HELD_OUT.search(function.name) and not _TRAINS.search(function.name)
    return bool(told) or (isinstance(call, ast.Call) and (is_called(call, HELD_OUT, file) or _is_looked_at(call, file)))


def _is_looked_at(sampler: ast.Call, file: File) -> bool:
    """Its loader is gone over right where it is made, by a loop that calls nothing that learns, and nowhere else."""
    loader = next((p for p in file.parents(sampler) if isinstance(p, ast.Call)), None)
    above = next(file.parents(loader), None) if loader is not None and name_of(loader, file) in LOADERS else None
    named = above.targets[0] if isinstance(above, ast.Assign) and len(above.targets) == 1 else None
    if not isinstance(named, ast.Name | ast.Attribute) or _TRAINS.search(tail_of(named)):
        return False
    uses = [at for at in file.kinds.get(type(named), ()) if at is not named and tail_of(at) == tail_of(named)]
    loops = [next(file.parents(at), None) for at in uses]
    here = function_of(sampler, file)
    return bool(loops) and all(
        isinstance(loop, ast.For) and at is loop.iter and function_of(loop, file) is here and not _learns(loop)
        for at, loop in zip(uses, loops, strict=True)
    )


def _learns(loop: ast.For) -> bool:
    return any(isinstance(at, ast.Call) and _LEARNS.search(tail_of(at)) for at in walk(loop))


def is_chosen_sampler(choice: ast.IfExp, file: File) -> bool:
    """``kind = DistributedSampler if several else RandomSampler``, of which one is made later."""
    if not any(name_of(side, file) in SAMPLERS for side in (choice.body, choice.orelse)):
        return False
    above = next(file.parents(choice), None)
    kept = {at.id for at in above.targets if isinstance(at, ast.Name)} if isinstance(above, ast.Assign) else set()
    made = [call for name in kept for call in calls_of(file).get(name, ())]
    return any(not is_held_out(call, file) for call in made)


def is_told_to_shuffle(shuffle: ast.expr, sampler: ast.Call, file: File) -> bool:
    """Whether it is set to shuffle: here, by what a call in this file passes for the parameter that says so, or by its
    default; or it is what is trained on, by the name of the setting or of the data."""
    return _is_told(shuffle, sampler, file) or _is_by_default(shuffle, file) or _is_for_training(shuffle, sampler, file)


def _is_told(shuffle: ast.expr, sampler: ast.Call, file: File) -> bool:
    asked = {at.test.id for at in file.parents(sampler) if isinstance(at, ast.If) and isinstance(at.test, ast.Name)}
    wanted: ast.expr
    for said in (shuffle, *values(shuffle, file)):
        if isinstance(said, ast.UnaryOp) and isinstance(said.op, ast.Not):
            given, wanted = passed(said.operand, file), ast.Constant(False)
        elif isinstance(said, ast.Compare) and len(said.ops) == 1 and isinstance(said.ops[0], ast.Eq):
            given, wanted = passed(said.left, file), said.comparators[0]
        else:
            given, wanted = [said, *passed(said, file)], ast.Constant(True)
        if any(ast.dump(one) == ast.dump(wanted) and not _is_passed_by(one, asked, file) for one in given):
            return True
    return False


def _is_passed_by(given: ast.expr, asked: set[str], file: File) -> bool:
    """Whether the call that passes a setting also says, by a flag, that no sampler is to be made."""
    call = next((at for at in itertools.islice(file.parents(given), 2) if isinstance(at, ast.Call)), None)
    return call is not None and any(one.arg in asked and is_constant(one.value, False) for one in call.keywords)


def _is_by_default(shuffle: ast.expr, file: File) -> bool:
    """``def loader(rows, shuffle=True)``, which no call of this file tells otherwise."""
    function = function_of(shuffle, file)
    if not isinstance(shuffle, ast.Name) or function is None or passed(shuffle, file):
        return False
    plain, keywords = [*function.args.posonlyargs, *function.args.args], function.args.kwonlyargs
    defaults = [*zip(reversed(plain), reversed(function.args.defaults), strict=False)]
    defaults += [(one, said) for one, said in zip(keywords, function.args.kw_defaults, strict=True) if said is not None]
    return any(one.arg == shuffle.id and is_constant(said, True) for one, said in defaults)


def _is_for_training(shuffle: ast.expr, sampler: ast.Call, file: File) -> bool:
    if isinstance(shuffle, ast.Constant):
        return False
    if isinstance(shuffle, ast.UnaryOp):
        denied = isinstance(shuffle.op, ast.Not)
        is_setting = isinstance(shuffle.operand, ast.Attribute) and not speaks_of(shuffle, _TRAINS)
        return denied and (is_setting or speaks_of(shuffle, HELD_OUT))  # who denies a setting has it off by default
    if is_called(sampler, _TRAINS, file):
        return True
    said = [one for one in (shuffle, *values(shuffle, file)) if isinstance(one, ast.Name | ast.Compare | ast.BoolOp)]
    unlike = (ast.NotEq, ast.NotIn, ast.IsNot)
    return any(speaks_of(one, _TRAINS) and not any(isinstance(at, unlike) for at in ast.walk(one)) for one in said)
