"""A function that goes over held-out data and gives, shows or compares the mean of what this process saw of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tables.data import HELD_OUT
from allranks.check.tree.counted import (
    counted_by,
    gathered,
    handed_on,
    made_of,
    means_of,
    methods_called,
    number_of,
)
from allranks.check.tree.dealt_loaders import dealt_at, is_whole, passed_on
from allranks.check.tree.namesakes import only_sounds
from allranks.check.tree.origins import function_called, values
from allranks.check.tree.skips import AGREES, calls_in
from allranks.check.tree.splits import deals_held_out
from allranks.check.tree.syntax import (
    Function,
    asks_rank,
    calls_of,
    class_of,
    function_of,
    nodes_in,
    own,
    places_in,
    rank_guard,
    tail_of,
    words_of,
)

_EVALUATES = re.compile(r"(?i)(^|_)(val|valid|validate|validation|eval|evaluate|evaluation|test|dev)(_|$)")
_LOADER = re.compile(r"(?i)(loader|dataset|_dl|data|batches|samples|iterator|_set|_ds|queue)$")
# What is no data to look at: a step, a function, what is not amiss.
_OTHERWISE = re.compile(r"_(step|fn)$|(^|_)valid_(?!\w*(load|set|data|dl|iter|split|batch|queue|gen|sampl))")
# What is averaged of models, as the last checkpoints, lies in files that all read.
_WEIGHTS = re.compile(r"(?i)^(state_?dicts?|checkpoints?|ckpts?)$")
_MEASURES = re.compile(r"(?i)(loss(es)?|metrics?|criterion|criteria|scorers?|measures?)$")
_TRAINS = re.compile(r"^(backward|zero_grad|apply_gradients|train_step|manual_backward|train_batch)$")
_QUIET = ("no_grad", "inference_mode", "eval", "disable_grad")
# Somebody else may bring the parts together: metrics and evaluators that reduce when they are asked, and whoever is
# named after all processes.
_LEFT = re.compile(
    rf"{AGREES.pattern}|Gather|Reduce|torchmetrics|[Ee]valuator|\.(compute|aggregate|get_buffer)\(|interleave|[Dd]istributed|\b(average|avg)_(?!precision)"
    r"|_(average|avg)\(|across|all_ranks|\bhvd\.|\bxm\.|mesh|pjit|NamedSharding|pmap"
)
_OTHERS = re.compile(r"(^|[._])(world|comm|comms|dist|mpi|hvd|horovod|accelerator|fabric|group|utils_dist)([._]|$)")
# What says who is here, deals out, waits or wraps: nothing is brought together.
_ASKS = re.compile(
    r"(world_size|rank|Sampler|DataParallel|barrier|prepare|unwrap_model|print|autocast|log|process_group|is_initialized|is_available)$"
)
# How fast a process is, is its own.
_CLOCKS = re.compile(r"(?i)time|clock|elapsed|duration|speed|throughput|_sec(ond)?s?$|latenc|per_second")


class OwnMean(NamedTuple):
    """``mean``: what is made of this process' part; ``source``: what deals the data out, if this file shows it;
    ``sure``: this file shows that held-out data is dealt out; ``kind``: the class of the object that has counted;
    ``handed``: calls of functions of other files that are given what was added up."""

    mean: ast.AST
    source: ast.AST | None
    sure: bool
    kind: str = ""
    handed: tuple[ast.Call, ...] = ()


def given_away(function: Function, file: File) -> Iterator[tuple[ast.Call, ast.AST]]:
    """Yield the calls of functions of other files that evaluate, and are given data that this file deals out, whose
    result a function keeps as it is; and what deals it out."""
    for call in own(function):
        if not isinstance(call, ast.Call) or not _EVALUATES.search(tail_of(call)) or _defined(call, file):
            continue
        given = (one for one in (*call.args, *(k.value for k in call.keywords)) if _is_held_out(one))
        source = next((found for one in given if (found := dealt_at(one, file)) is not None), None)
        if source is not None and not _is_agreed(call, file):
            yield call, source


def _defined(call: ast.Call, file: File) -> bool:
    return not isinstance(call.func, ast.Name) or function_called(call, file) is not None


def _is_held_out(given: ast.expr) -> bool:
    words = set(words_of(given))
    return bool(words) and not any("train" in word.lower() for word in words)


def own_mean(function: Function, file: File) -> OwnMean | None:
    """Return where a function makes one number of what it has seen of held-out data, if nothing of this file brings it
    together with those of the other processes."""
    for loop in own(function):
        if not isinstance(loop, ast.For) or _trains(loop, file):
            continue
        source = dealt_at(loop.iter, file)
        if not _looks(loop, function, known=source is not None) or (source is None and is_whole(loop.iter, file)):
            continue
        mean = number_of(loop, function, file)
        if mean is not None:
            if not _is_together(function, file):
                handed = tuple(handed_on(loop, function, file))
                return OwnMean(mean, source, sure=source is not None or _deals_for(function, file), handed=handed)
            if source is not None and not _is_brought(loop, function, file):
                return OwnMean(mean, source, sure=True)
            if (left := _left_out(loop, function, file)) is not None:
                return OwnMean(left, source, sure=True)
        counted = counted_by(loop, function, file)
        if counted is not None and not _is_together(function, file):
            return OwnMean(counted[0], source, sure=False, kind=counted[1])
    return None


def _deals_for(function: Function, file: File) -> bool:
    """Whether the file deals held-out data out, and calls the function on every rank."""
    calls = _calls(function, file)
    return bool(calls) and deals_held_out(file) and all(rank_guard(call, file) is None for call in calls)


def _calls(function: Function, file: File) -> list[ast.Call]:
    """Return the calls of a function in its file; of a method by any object."""
    method = class_of(function, file) is not None
    return [at for at in calls_of(file).get(function.name, ()) if isinstance(at.func, ast.Attribute) == method]


def _looks(loop: ast.For, function: Function, *, known: bool) -> bool:
    """``for batch in val_loader``; in a function that evaluates, over any data."""
    data = passed_on(loop.iter)
    words = list(words_of(data))
    if any("train" in word.lower() for word in words) or _is_count(data) or _is_named(data):
        return False
    if any(_WEIGHTS.search(word) for word in (*words, *words_of(loop.target))):
        return False
    if any(HELD_OUT.search(word) for word in words if not _OTHERWISE.search(word)):
        return True
    if "train" in function.name:
        return False
    quiet = any(tail_of(at) in _QUIET for at in own(function) if isinstance(at, ast.Call))
    quiet = quiet or any(tail_of(at) in _QUIET for at in function.decorator_list)
    over_data = known or bool(words and _LOADER.search(words[-1]))
    return over_data and (quiet or bool(_EVALUATES.search(function.name)))


def _is_count(data: ast.expr) -> bool:
    """``range(test_batch_size)``: no data, but for that of which it is the length."""
    counts = isinstance(data, ast.Call) and tail_of(data) == "range"
    return counts and not any(isinstance(at, ast.Call) and tail_of(at) == "len" for at in walk(data))


def _is_named(data: ast.expr) -> bool:
    """``eval_losses.items()``: what is measured, by its names; ``test_sets.keys()``: names."""
    asked = tail_of(data) if isinstance(data, ast.Call) and isinstance(data.func, ast.Attribute) else ""
    return asked == "keys" or (asked == "items" and any(map(_MEASURES.search, words_of(data))))


def _trains(loop: ast.For, file: File) -> bool:
    calls = list(calls_in(loop.body))
    below = [f for call in calls if (f := function_called(call, file)) is not None]
    calls += [at for f in below for at in own(f) if isinstance(at, ast.Call)]
    return any(_TRAINS.search(tail_of(call)) for call in calls)


def _is_together(function: Function, file: File) -> bool:
    """Whether the function, what it calls in this file, or who calls it meets the other processes, or each tells of
    itself."""
    if _meets(function, file, 3) or _tells_rank(function):
        return True
    return any(_is_agreed(call, file) for call in _calls(function, file))


def _is_brought(loop: ast.For, function: Function, file: File) -> bool:
    """Whether the loop, or whoever is given what it has added up, may meet the other processes, in a function that
    trains too, and meets them for that; and of any other function."""
    if not any(isinstance(at, ast.For) and _trains(at, file) for at in own(function)):
        return True
    names = made_of(gathered(loop, file), loop, function)
    inner = set(map(id, nodes_in(loop.body)))
    for call in (at for at in own(function) if isinstance(at, ast.Call)):
        if (id(call) in inner or not names.isdisjoint(places_in(call))) and _may_meet(call, file):
            return True
    return _tells_rank(function)


def _left_out(loop: ast.For, function: Function, file: File) -> ast.AST | None:
    """Return the number made of what a loop adds up and nobody brings together, where its function does bring something
    else together that the loop has added up: so the data is dealt out."""
    calls = [at for at in own(function) if isinstance(at, ast.Call) and _may_meet(at, file)]
    inner = set(map(id, nodes_in(loop.body)))
    if not calls or any(id(call) in inner for call in calls):
        return None
    given = {place for call in calls for place in places_in(call)}
    made = {name: made_of({name}, loop, function) for name in dict.fromkeys(gathered(loop, file))}
    brought = {name for name, more in made.items() if not more.isdisjoint(given)}
    if not brought or _tells_rank(function) or any(_is_agreed(call, file) for call in _calls(function, file)):
        return None
    left = {place for name, more in made.items() if name not in brought for place in more}
    means = means_of(left - made_of(brought | given, loop, function), loop, function)
    return next((mean for mean in means if not any(map(_CLOCKS.search, words_of(mean)))), None)


def _may_meet(call: ast.Call, file: File) -> bool:
    told = _told(call, file)
    if _ASKS.search(told) or only_sounds(call):
        return False
    called = function_called(call, file)
    return bool(_LEFT.search(told + "(") or _OTHERS.search(told)) or (called is not None and _meets(called, file, 2))


def _meets(function: Function, file: File, depth: int, asked: frozenset[Function] = frozenset()) -> bool:
    """``depth``: how far the functions of this file that it calls are looked at; ``asked``: those above, which meet
    nobody as far as is known yet."""
    asked |= {function}
    loops = [at.iter for at in own(function) if isinstance(at, ast.For)]
    calls = [at for at in own(function) if isinstance(at, ast.Call) and at not in loops]
    for call in calls:
        told = _told(call, file)
        if _ASKS.search(told) or only_sounds(call) or _stays(call, file, asked):
            continue
        if _LEFT.search(told + "(") or (_OTHERS.search(told) and call.args):
            return True
    below = (function_called(call, file) for call in calls) if depth else ()
    return any(_meets(one, file, depth - 1, asked) for one in below if one is not None and one not in asked)


def _stays(call: ast.Call, file: File, asked: frozenset[Function]) -> bool:
    """A class of this file, or a method of an object that one of them makes, or nobody here, where it meets nobody."""
    if isinstance(call.func, ast.Name):
        return any(isinstance(at, ast.ClassDef) and at.name == call.func.id for at in file.tree.body)
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    methods = methods_called(tail_of(call), file) if isinstance(of, ast.Name) else []
    owners = {owner.name for method in methods if (owner := class_of(method, file)) is not None}
    made_here = of is not None and all(tail_of(one) in owners for one in values(of, file))
    return bool(methods) and made_here and not any(_meets(one, file, 0, asked) for one in methods if one not in asked)


def _told(call: ast.Call, file: File) -> str:
    """Return the name of what is called, as far as it is one."""
    return file.qualified(call.func) or tail_of(call)


def _tells_rank(function: Function) -> bool:
    """``print(f"rank {rank}: {loss}")``, ``open(f"{rank}.json")``"""
    return any(isinstance(at, ast.JoinedStr) and asks_rank(at) for at in own(function))


def _is_agreed(call: ast.Call, file: File) -> bool:
    """What it returns is reduced where it is called, or handed to a function of this file that does so."""
    statement = next((above for above in file.parents(call) if isinstance(above, ast.stmt)), None)
    if statement is None or _LEFT.search(ast.unparse(statement).partition(ast.unparse(call))[0]):
        return True
    nodes, names = own(function_of(call, file) or file.tree), _stored(statement)
    for at in nodes:
        if isinstance(at, ast.Assign) and not names.isdisjoint(places_in(at.value)):
            names |= _stored(at)
    others = (at for at in nodes if isinstance(at, ast.Call) and at is not call)
    return any(_agrees(at, file) and not names.isdisjoint(places_in(at)) for at in others)


def _stored(statement: ast.stmt) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return {place for target in targets for place in places_in(target)}


def _agrees(call: ast.Call, file: File) -> bool:
    called = function_called(call, file)
    told = _told(call, file)
    by_name = not _ASKS.search(told) and (_LEFT.search(told) or _OTHERS.search(told))
    return bool(by_name) or (called is not None and _meets(called, file, 2))
