"""Models that are trained beside others which are wrapped, by an optimizer of their own, and are not wrapped."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import values
from allranks.check.tree.sharded_models import is_optimizer, models_of
from allranks.check.tree.syntax import (
    Function,
    arguments,
    calls_of,
    class_of,
    inside,
    name_of,
    own,
    rank_guard,
    tail_of,
)

WRAPPERS = ("torch.nn.parallel.DistributedDataParallel", "apex.parallel.DistributedDataParallel")
# The file averages by itself, or leaves it to somebody else.
_AVERAGES = re.compile(
    r"(?i)(average|reduce|sync\w*|share|broadcast|\bmpi)_?\w*_?(grad|param|weight|model|network|module)"
    r"|\bgrads?\b.*(all_?reduce|broadcast)|(all_?reduce|broadcast)\w*\(.*(grad|param|\bp\b)|\b_?flatten_dense"
    r"|deepspeed|horovod|\bhvd\b|FullyShardedDataParallel|fully_shard|Accelerator|lightning|\bFabric\b|prepare\("
)
# What gives back the model that it is given.
_MOVES = frozenset(["to", "cuda", "cpu", "train", "eval", "float", "half", "bfloat16", "double", "apply"])


def left_unwrapped(function: Function, file: File) -> Iterator[tuple[ast.Call, str, ast.Call]]:
    """Yield the optimizers that a function makes of models that nothing wraps, with the model as it is written and a
    call that wraps another, where the function has an optimizer of such another too."""
    wraps = file.once("wraps", file.tree, lambda _: _wraps(file))
    if not wraps:
        return
    made = [(call, [*models_of(call, file)]) for call in _optimizers(function, file)]
    wrapped = {ast.unparse(call.args[0]) for call in wraps if call.args}
    others = [models for _, models in made if any(ast.unparse(model) in wrapped for model in models)]
    for call, models in made:
        left = models and others and not any(ast.unparse(model) in wrapped for model in models)
        if left and all(_is_left(model, function, file) for model in models) and _is_stepped(call, file):
            yield call, ast.unparse(models[0]), wraps[-1]


def _wraps(file: File) -> Sequence[ast.Call]:
    """Return the calls that wrap a model of a file; none where the file averages by itself, or where which models are
    wrapped is not written out."""
    calls = [at for at in calls_of(file).get("DistributedDataParallel", ()) if name_of(at, file) in WRAPPERS]
    plain = all(call.args and isinstance(call.args[0], ast.Name | ast.Attribute) for call in calls)
    loops = (ast.For, ast.While, ast.ListComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
    looped = any(isinstance(above, loops) for call in calls for above, _ in inside(call, file))
    helper = any(isinstance(next(file.parents(call), None), ast.Return) for call in calls)
    return () if not plain or looped or helper or _AVERAGES.search(file.text) else calls


def _optimizers(function: Function, file: File) -> Iterator[ast.Call]:
    for at in own(function):
        if isinstance(at, ast.Assign) and isinstance(at.value, ast.Call) and is_optimizer(at.value, file):
            stored = isinstance(at.targets[0], ast.Name | ast.Attribute) and "sched" not in name_of(at.value, file)
            if stored and rank_guard(at, file) is None:
                yield at.value


def _is_left(model: ast.expr, function: Function, file: File) -> bool:
    """Whether a model is made in this scope, called in this file, and no part of another; nothing else is given it that
    might wrap it."""
    text, made = ast.unparse(model), values(model, file)
    of_object = isinstance(model, ast.Attribute) and ast.unparse(model.value) == "self"
    if not (isinstance(model, ast.Name) or of_object) or not made:
        return False
    if not all(_makes(one, text) for one in made) or not any(_is_made(one) for one in made):
        return False
    scope = class_of(function, file) if of_object else function
    calls = [at for at in (walk(scope) if scope is not None else ()) if isinstance(at, ast.Call)]
    given = [call for call in calls if any(ast.unparse(one) == text for one in arguments(call))]
    name = tail_of(model)
    if any(tail_of(call)[:1].isupper() or "parallel" in tail_of(call) or _stores(call, name, file) for call in given):
        return False
    return any(name == tail_of(call) for call in calls_of(file).get(name, ()))


def _makes(value: ast.expr, text: str) -> bool:
    """``Net(...)``, ``Net(...).cuda()``; ``model.to(device)`` of the model itself; None."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _MOVES:
        value = value.func.value
    return ast.unparse(value) in (text, "None") or _is_class(value)


def _is_made(value: ast.expr) -> bool:
    return not (isinstance(value, ast.Constant) and value.value is None)


def _is_class(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and tail_of(value)[:1].isupper() and tail_of(value) != "DistributedDataParallel"


def _stores(call: ast.Call, name: str, file: File) -> bool:
    """Whether what a call gives back takes the place of the model that it is given."""
    above = next(file.parents(call), None)
    targets = above.targets if isinstance(above, ast.Assign) else []
    return any(name in map(tail_of, walk(target)) for target in targets)


def _is_stepped(optimizer: ast.Call, file: File) -> bool:
    above = next(file.parents(optimizer), None)
    name = tail_of(above.targets[0]) if isinstance(above, ast.Assign) else ""
    return bool(re.search(rf"\b{re.escape(name)}\.step\(|\.step\(\s*[\w.]*\b{re.escape(name)}\s*[,)]", file.text))
