"""A copy of a model (an average, a teacher) that is taken before the ranks' models are made equal."""

from __future__ import annotations

import ast
import re

from allranks.check.sources.source import File
from allranks.check.tree.origins import RANK_KINDS, origins
from allranks.check.tree.syntax import arguments, asks_rank, calls_of, function_of, own, tail_of

COPIES = (
    *("deepcopy", "ModelEma", "ModelEmaV2", "ModelEmaV3", "ModelEMA", "EMAModel", "EMA", "Ema"),
    *("ExponentialMovingAverage", "AveragedModel"),
)
_WRAPS = re.compile(r"(DistributedDataParallel|DDP)$")
_SENDS = re.compile(r"broadcast|load_state_dict|^set$")


def copied_early(call: ast.Call, file: File) -> ast.Call | None:
    """Return what wraps the model behind the copy that ``call`` takes of it, where each rank seeds its own."""
    scope = function_of(call, file)
    if scope is None or tail_of(call) not in COPIES or not call.args:
        return None
    first = call.args[0]
    copied = {_named(first), *map(_named, first.args if isinstance(first, ast.Call) else ())} - {""}
    later = [at for at in own(scope) if isinstance(at, ast.Call) and at.lineno > call.lineno]
    wraps = (at for at in later if _WRAPS.search(tail_of(at)) and at.args and _named(at.args[0]) in copied)
    found = next(wraps, None)
    if found is None or not _seeds_by_rank(file):
        return None
    above = next(file.parents(call), None)
    made = _named(above.targets[0]) if isinstance(above, ast.Assign) else ""
    sent = (at for at in later if _SENDS.search(tail_of(at)))
    return None if made and any(made in ast.unparse(at) for at in sent) else found


def _named(node: ast.expr) -> str:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def _seeds_by_rank(file: File) -> bool:
    seeds = (call for name, calls in calls_of(file).items() if "seed" in name for call in calls)
    return any(origins(at, file) & RANK_KINDS or asks_rank(at) for call in seeds for at in arguments(call))
