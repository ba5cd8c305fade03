"""A copy of a model (an average, a teacher) that is taken before the ranks' models are made equal."""

from __future__ import annotations

import ast
import re

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import RANK_KINDS, origins, values
from allranks.check.tree.syntax import (
    arguments,
    asks_rank,
    calls_of,
    function_of,
    is_constant,
    keyword,
    own,
    rank_guard,
    tail_of,
)

COPIES = (
    *("deepcopy", "ModelEma", "ModelEmaV2", "ModelEmaV3", "ModelEMA", "EMAModel", "EMA", "Ema"),
    *("ExponentialMovingAverage", "AveragedModel"),
)
_WRAPS = re.compile(r"(DistributedDataParallel|DDP)$")
_READS = re.compile(r"from_pretrained$|^load(_model)?$")
_SENDS = re.compile(r"broadcast|load_state_dict|^set$")


def copied_early(call: ast.Call, file: File) -> ast.Call | None:
    """Return what wraps the model behind the copy that ``call`` takes of it, where each rank seeds its own."""
    scope = function_of(call, file)
    if scope is None or tail_of(call) not in COPIES or not call.args or rank_guard(call, file) is not None:
        return None
    first = call.args[0]
    copied = {_named(first), *map(_named, first.args if isinstance(first, ast.Call) else ())} - {""}
    calls = [at for at in own(scope) if isinstance(at, ast.Call)]
    wraps = (at for at in calls if _WRAPS.search(tail_of(at)) and at.args and _named(at.args[0]) in copied)
    found = next((at for at in wraps if at.lineno > call.lineno), None)
    if found is None or not _seeds_by_rank(call, calls, file) or _is_read(first, file):
        return None
    above = next(file.parents(call), None)
    made = _named(above.targets[0]) if isinstance(above, ast.Assign) else ""
    later = (at for at in calls if at.lineno > call.lineno and _SENDS.search(tail_of(at)))
    given = (at for at in calls if at.lineno < call.lineno and tail_of(at) == "load_state_dict")
    alike = any(ast.unparse(at.func).removesuffix(".load_state_dict") in copied for at in given)
    return None if alike or (made and any(made in ast.unparse(at) for at in later)) else found


def _is_read(model: ast.expr, file: File) -> bool:
    """What is copied was read from one place by all: no seed has made it."""
    made = (at for value in values(model, file) for at in walk(value) if isinstance(at, ast.Call))
    return any(_READS.search(tail_of(at)) or is_constant(keyword(at, "pretrained"), True) for at in made)


def _named(node: ast.expr) -> str:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def _seeds_by_rank(copies: ast.Call, calls: list[ast.Call], file: File) -> bool:
    """The last seed above in the function holds the rank, or if there is none, one of the file."""
    above = [at for at in calls if "seed" in tail_of(at) and at.lineno < copies.lineno and not _is_of_generator(at)]
    every = (at for name, found in calls_of(file).items() if "seed" in name for at in found if not _is_of_generator(at))
    seeds = above[-1:] or every
    return any(origins(at, file) & RANK_KINDS or asks_rank(at) for call in seeds for at in arguments(call))


def _is_of_generator(seeds: ast.Call) -> bool:
    return isinstance(seeds.func, ast.Attribute) and "enerator" in ast.unparse(seeds.func.value)
