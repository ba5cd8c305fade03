"""Where what a process has scored by itself, on its own part of the data, decides what all processes must do alike.

A score is told by its name and by where it comes from: a function that goes through data, or a sum in such a loop. It
is followed through what is set, counted and compared on the way: ``if loss < best: bad = 0`` and ``if bad > limit``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from allranks.check.sources.nodes import children, walk
from allranks.check.sources.source import File
from allranks.check.tree.namesakes import only_sounds
from allranks.check.tree.origins import function_called, function_named, values
from allranks.check.tree.skips import AGREES, calls_in
from allranks.check.tree.splits import deals_held_out
from allranks.check.tree.syntax import Function, asks_rank, function_of, inside, keyword, own, tail_of

SCORE = re.compile(
    r"(?i)(^|_)(acc|accuracy|score|scores|auc|f1|bleu|rouge|wer|cer|ppl|perplexity|reward|rewards|iou|miou|dice|nll|elbo"
    r"|metric|metrics|solved|returns?)(_|$)|loss"
)
_LOOKS = re.compile(
    r"(?i)(^|_)(val|valid|validate|validation|eval|evaluate|evaluation|test|dev|rollouts?)(_|$)|acc|f1|auc|bleu|wer|metric"
)
# Code that reduces, or leaves the score to somebody who does.
_TOLD = re.compile(f"{AGREES.pattern}|compute$|all_ranks|average_across|mean_over|cross_process|distributed_mean")
_TRAINS = re.compile(
    r"(?i)(^|_)(backward|optimizer|optim|train|training|fit|train_step|train_epoch|update|all_reduce|barrier|engine)(_|$)"
)
# Objects that are told scores.
_KEEPS = re.compile(r"(?i)stop|early|patience|best|monitor|plateau")
# What all must call, told by its name alone.
_MEETS = re.compile(
    r"(^|\.)(barrier|wait_for_everyone|save_state|consolidate_state_dict|all_gather|all_reduce(_mean|_sum|_max|_dict)?"
    r"|gather_object|sync_global_devices|process_allgather|all_gather_object)$|(?i:engine|deepspeed|\bds)\w*\.save_checkpoint$"
    r"|(^|[._])(fabric\.save|(dcp|dist_cp|DCP|dist_checkpoint)\.(save|async_save)|(?i:mngr|(ckpt|checkpoint)\w*man\w*r)\.save)$"
)
_DEALT = re.compile(r"DistributedSampler|accelerator\.prepare|split_between_processes|shard\(|num_shards|process_index")
_DATA = re.compile(
    r"(?i)(loader|dataset|_dl|data|batches|samples|iterator|stream|episodes|envs?|rows|ds)\b"
    r"|\b(val|valid|validation|test|dev|eval)(_?(iter|set|gen|split|dl))?\b"
)
_MOST = 40


class Decided(NamedTuple):
    """``score``: the name of what decides. ``certain``: this file shows that it is of a part of the data."""

    score: str
    certain: bool


def leaves_by_score(branch: ast.If, file: File) -> Decided | None:
    """Return the score by which a process leaves a loop of training at ``branch``, if it is its own."""
    function = function_of(branch, file)
    loop = next((above for above, _ in inside(branch, file) if isinstance(above, ast.For | ast.While)), None)
    if function is None or loop is None or not _trains(loop):
        return None
    return _decided(branch.test, loop, function, file) if isinstance(branch.body[-1], ast.Break | ast.Return) else None


def made_by(test: ast.expr, file: File) -> list[ast.expr]:
    """Return the first calls that give the names of a condition their values: ``s, n = total(sums).tolist()``."""
    names = (at for at in walk(test) if isinstance(at, ast.Name))
    stored = (value for name in names for value in values(name, file))
    called = (value for value in stored if any(isinstance(at, ast.Call) for at in walk(value)))
    return list(dict.fromkeys(called))[:2]


def meets_by_score(branch: ast.If, file: File) -> tuple[ast.Call, Decided] | None:
    """Return the call that all processes must make which hangs on a score of one of them, in a loop of training."""
    function = function_of(branch, file)
    loops = [above for above, _ in inside(branch, file) if isinstance(above, ast.For | ast.While)]
    if function is None or not loops or not _trains(loops[-1]):
        return None
    meeting = meeting_in(branch.body, file)
    found = _decided(branch.test, loops[-1], function, file) if meeting is not None else None
    return (meeting, found) if meeting is not None and found is not None else None


def meeting_in(body: Iterable[ast.stmt], file: File) -> ast.Call | None:
    """Return the first call of a block that all processes must make."""
    return next((call for call in calls_in(body) if _meets(call, file)), None)


def _meets(call: ast.Call, file: File) -> bool:
    """Whether all must make a call, or a function of this file does so that is called."""
    if _MEETS.search(ast.unparse(call.func)):
        return True
    called = function_called(call, file)
    return called is not None and any(
        isinstance(at, ast.Call) and _MEETS.search(ast.unparse(at.func)) for at in own(called)
    )


def _trains(loop: ast.AST) -> bool:
    """Whether a loop makes steps of training, or calls what makes them."""
    return any(_TRAINS.search(tail_of(at)) for at in own(loop) if isinstance(at, ast.Call))


def _decided(test: ast.expr, loop: ast.AST, function: Function, file: File) -> Decided | None:
    """Follow a condition back to a score."""
    waiting: list[ast.expr] = [test]
    seen: set[str] = set()
    changed: set[str] = set()  # in the loop
    score, certain, dealt = "", False, False
    while waiting and len(seen) < _MOST:
        at = waiting.pop()
        if (not isinstance(at, ast.Call) and asks_rank(at)) or _agrees(at):
            return None
        for name in [word for word in _variables(at) if word not in seen]:
            seen.add(name)
            for value, guards in _stored(name, loop, function, file):
                changed |= {name} if _is_in(value, loop, file) else set()
                summed = _is_summed(value, loop, function, file)
                scored = name if summed or _is_score(name, value) else _score_called(value, file)
                made = True if summed else _made(value, loop, file) if scored else None
                waiting += guards if made is not None else [value, *guards]
                if made is not None:
                    score, certain, dealt = score or scored, certain or made, dealt or summed
    if not score or _is_sent(seen, changed, function):
        return None
    if not dealt:
        dealt = deals_held_out(file) if _LOOKS.search(score) else _DEALT.search(file.text) is not None
    return Decided(score, certain and dealt)


def _is_score(name: str, value: ast.expr) -> bool:
    return bool(SCORE.search(name) or (isinstance(value, ast.Call) and SCORE.search(tail_of(value))))


def _score_called(value: ast.expr, file: File) -> str:
    """Return the name of a function of this file that goes through held-out data and gives a number, where its result
    is stored or told as it is, under whatever name."""
    calls = [at for at in (value, *(value.args if isinstance(value, ast.Call) else ())) if isinstance(at, ast.Call)]
    for call in calls:
        called = function_called(call, file)
        if called is not None and _LOOKS.search(called.name) and goes_through_data(called, file) and counts(called):
            return called.name
    return ""


def counts(function: Function) -> bool:
    """Whether a function gives back a number that it has computed."""
    given = [at.value for at in own(function) if isinstance(at, ast.Return) and at.value is not None]
    asked = {at.id for value in given for at in walk(value) if isinstance(at, ast.Name)}
    for at in own(function):
        if isinstance(at, ast.Assign) and any(asked & set(_variables(target)) for target in at.targets):
            given.append(at.value)
    parts = [at for value in given for at in walk(value)]
    return any(
        isinstance(at.op, ast.Div) if isinstance(at, ast.BinOp) else tail_of(at) in ("item", "mean", "float")
        for at in parts
        if isinstance(at, ast.BinOp | ast.Call)
    )


def _is_summed(value: ast.expr, loop: ast.AST, function: Function, file: File) -> bool:
    """Whether a number is read from each batch of a loader that deals out its samples, and added up: whatever that is
    called."""
    added, above = (
        next(file.parents(value), None),
        next((p for p in file.parents(value) if isinstance(p, ast.For)), None),
    )
    if not isinstance(added, ast.AugAssign) or above is None or above is loop or not _is_in(above, loop, file):
        return False
    source = above.iter.args[0] if isinstance(above.iter, ast.Call) and above.iter.args else above.iter
    reads = any(isinstance(at, ast.Call) and tail_of(at) == "item" for at in walk(value))
    return reads and isinstance(source, ast.Name) and _is_dealt(source.id, function)


def _is_dealt(loader: str, function: Function) -> bool:
    """Whether a variable is a loader with a sampler that deals out its samples."""
    made = {
        target.id: at.value
        for at in own(function)
        if isinstance(at, ast.Assign) and isinstance(at.value, ast.Call)
        for target in at.targets
        if isinstance(target, ast.Name)
    }
    given = keyword(made[loader], "sampler") if loader in made else None
    sampler = made.get(given.id) if isinstance(given, ast.Name) else given
    return isinstance(sampler, ast.Call) and tail_of(sampler) == "DistributedSampler"


def _agrees(node: ast.AST) -> bool:
    return any(_tells(call) for call in walk(node) if isinstance(call, ast.Call))


def _tells(call: ast.Call) -> bool:
    """Whether a call, by its name, reduces over the processes."""
    return bool(_TOLD.search(tail_of(call))) and not only_sounds(call)


def _variables(node: ast.AST) -> Iterator[str]:
    """Yield the variables and attributes of ``self`` that an expression reads."""
    for at in walk(node):
        if isinstance(at, ast.Name) and at.id != "self":
            yield at.id
        elif isinstance(at, ast.Attribute) and isinstance(at.value, ast.Name) and at.value.id == "self":
            yield f"self.{at.attr}"


def _stored(name: str, loop: ast.AST, function: Function, file: File) -> Iterator[tuple[ast.expr, list[ast.expr]]]:
    """Yield what a function stores under a name, and the conditions in the loop under which it does."""
    for at in file.once("assignments", function, lambda where: _assignments(where, file)).get(name, ()):
        guards = [
            above.test
            for above, child in inside(at, file)
            if isinstance(above, ast.If) and child is not above.test and _is_in(above, loop, file)
        ]
        yield at.value, guards


def _assignments(function: Function, file: File) -> dict[str, list[ast.Assign | ast.AugAssign | ast.Expr]]:
    found: dict[str, list[ast.Assign | ast.AugAssign | ast.Expr]] = {}
    for at in own(function):
        if isinstance(at, ast.Assign | ast.Expr) and isinstance(at.value, ast.Call) and at.value.args:
            for name in _variables(at.value.func):
                if tail_of(at.value) == "append" or _keeps(name, at.value, file):
                    found.setdefault(name, []).append(at)
        if isinstance(at, ast.Assign | ast.AugAssign):
            for target in at.targets if isinstance(at, ast.Assign) else [at.target]:
                for part in (target, *children(target)) if isinstance(target, ast.Tuple) else (target,):
                    for name in _variables(part):
                        found.setdefault(name, []).append(at)
    return found


def _keeps(name: str, told: ast.Call, file: File) -> bool:
    """Whether what is called, or whose method is, keeps scores, as it or its class is called: each process its own."""
    objects = (told.func, told.func.value) if isinstance(told.func, ast.Attribute) else (told.func,)
    made = [one for at in objects for one in values(at, file) if isinstance(one, ast.Call)]
    classes = [at for at in file.nodes if isinstance(at, ast.ClassDef) and at.name in map(tail_of, made)]
    if any(map(_agrees, classes)):
        return False
    return bool(_KEEPS.search(name)) or any(_KEEPS.search(tail_of(one)) for one in made)


def _is_in(node: ast.AST, loop: ast.AST, file: File) -> bool:
    return any(above is loop for above in file.parents(node))


def _made(value: ast.expr, loop: ast.AST, file: File) -> bool | None:
    """Return whether a score is seen to be made of this process' data; None if it is none of its own."""
    if not _is_in(value, loop, file):
        return None
    for call in (at for at in walk(value) if isinstance(at, ast.Call)):
        if (called := function_called(call, file)) is not None:
            return None if reduces(called, file, 3) or not goes_through_data(called, file, 1) else True
    if isinstance(value, ast.Name):
        return None
    if _is_of_data(value, loop, file) or _is_added_up(value, loop, file):
        return True
    call_names = [tail_of(at) for at in walk(value) if isinstance(at, ast.Call)]
    return False if any(map(_LOOKS.search, call_names)) else None


def _is_of_data(value: ast.AST, loop: ast.AST, file: File) -> bool:
    """Whether it stands in a loop over data within ``loop``."""
    above = next((at for at in file.parents(value) if isinstance(at, ast.For)), None)
    if above is None or above is loop or not _is_in(above, loop, file):
        return False
    return bool(_DATA.search(ast.unparse(above.iter))) or _trains(above)


def _is_added_up(value: ast.expr, loop: ast.AST, file: File) -> bool:
    """``(hits[0] / hits[1]).item()``, of what a loop over data has added up."""
    function = function_of(value, file)
    if function is None or not any(isinstance(at, ast.BinOp) and isinstance(at.op, ast.Div) for at in walk(value)):
        return False
    names = [
        name
        for name in _variables(value)
        for stored, _ in _stored(name, loop, function, file)
        if isinstance(next(iter(file.parents(stored)), None), ast.AugAssign) and _is_of_data(stored, loop, file)
    ]
    return bool(names) and not _is_sent(set(names), set(names), function)


def reduces(function: ast.AST, file: File, depth: int) -> bool:
    """Whether a function, or what it calls in this file, reduces over the processes."""
    heads = [at.iter for at in own(function) if isinstance(at, ast.For)]  # what gives the data tells no scores
    calls = [at for at in own(function) if isinstance(at, ast.Call) and at not in heads]
    if any(map(_tells, calls)):
        return True
    handed = (function_named(at, file) for call in calls for at in call.args)  # called in there, most likely
    below = (*(function_called(call, file) for call in calls), *handed) if depth else ()
    return any(reduces(one, file, depth - 1) for one in below if one is not None and one is not function)


def goes_through_data(function: Function, file: File, depth: int = 0) -> bool:
    """Whether a function, or one that it calls and that is called so, has a loop over data, or one that is left when
    there are no more."""
    loops = (at for at in own(function) if isinstance(at, ast.For | ast.While | ast.comprehension))
    if any(isinstance(at, ast.While) or _DATA.search(ast.unparse(at.iter)) for at in loops):
        return True
    if not (depth and _LOOKS.search(function.name)):
        return False
    below = (function_called(at, file) for at in own(function) if isinstance(at, ast.Call))
    return any(one is not None and one is not function and goes_through_data(one, file) for one in below)


def _is_sent(names: set[str], changed: set[str], function: Function) -> bool:
    """Whether one of the names is given to what makes all processes agree, or one that is ``changed`` is one rank's
    say."""
    for at in own(function):
        if isinstance(at, ast.Assign | ast.Expr) and _agrees(at) and names & set(_variables(at)):
            return True
        if isinstance(at, ast.IfExp) and asks_rank(at.test) and changed & set(_variables(at)):
            return True
    return False
