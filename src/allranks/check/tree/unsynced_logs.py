"""What Lightning's modules log of held-out data without bringing the processes' parts together."""

from __future__ import annotations

import ast
import re

from allranks.check.sources.source import File
from allranks.check.tree.origins import function_called, values
from allranks.check.tree.own_scores import SCORE, reduces
from allranks.check.tree.skips import AGREES
from allranks.check.tree.syntax import (
    Function,
    calls_of,
    class_of,
    function_of,
    has_stars,
    is_constant,
    keyword,
    own,
    rank_guard,
    speaks_of,
    tail_of,
    words_of,
)

# Where Lightning looks at data that it has split, and what it calls there for others to log in.
_LOOKS = re.compile(r"(^|_)(validation|val|test)_(step|batch_end|epoch_end)$")
_LOSS = re.compile(r"(?i)loss|nll|elbo|error|mse|mae|psnr|ssim|pearson|precision|recall|auroc|corr(_|$)")
_COMPUTES = re.compile(r"(?i)loss|criteri|objective|step|forward")
_EVALUATES = re.compile(r"val|eval|test")
# Metric objects bring together what they count where these are called.
_BY_ITSELF = re.compile(rf"{AGREES.pattern}|^(compute|aggregate)$")
_GATHERED = re.compile(r"out|loss|result|metric|pred")  # what the steps of an epoch have left
_PASSES_ON = ("zip", "enumerate", "sum", "float", "list", "dict", "min", "max")
_DEEPEST = 20
_LIMITED, _FEW = ("val", "test"), 5


def unsynced(call: ast.Call, file: File) -> list[ast.Call]:
    """Return the calls ``self.log`` of a function that keep a loss or score, where held-out data is looked at, to this
    process' part: at the first of them, so that each function tells of its own once."""
    function = function_of(call, file)
    if file.once("trial", file.tree, lambda _: _is_trial(file)):
        return []
    found = [] if function is None else file.once("unsynced", function, lambda it: _unsynced(it, file))
    return found if found and found[0] is call else []


def _is_trial(file: File) -> bool:
    """Whether its trainer looks at so few batches that the number says nothing: it tries whether all runs."""
    limits = (keyword(call, f"limit_{word}_batches") for call in calls_of(file).get("Trainer", ()) for word in _LIMITED)
    return any(isinstance(one, ast.Constant) and type(one.value) is int and one.value < _FEW for one in limits)


def _unsynced(function: Function, file: File) -> list[ast.Call]:
    owner = class_of(function, file)
    if owner is None or not (_LOOKS.search(function.name) or _is_called_to_look(function.name, owner)):
        return []
    kept = (at for at in own(function) if isinstance(at, ast.Call) and _keeps(at, owner))
    found = [at for at in kept if _is_own(at, function, file)]
    return [] if found and any(reduces(one, file, 2) for one in _before(function, owner)) else found


def _before(function: Function, owner: ast.ClassDef) -> list[Function]:
    """Return the function, and what fills the lists that the end of an epoch goes over."""
    steps = [at for at in owner.body if isinstance(at, ast.FunctionDef) and _LOOKS.search(at.name)]
    return [function, *(steps if function.name.endswith("epoch_end") else ())]


def _keeps(call: ast.Call, owner: ast.ClassDef) -> bool:
    """A call of Lightning's that leaves a value as each process has it, and means it over the epoch."""
    if tail_of(call) not in ("log", "log_dict") or not isinstance(call.func, ast.Attribute) or has_stars(call):
        return False
    words = {k.arg for k in call.keywords}
    replaced = any(isinstance(at, ast.FunctionDef) and at.name == call.func.attr for at in owner.body)
    if not (words & {"on_epoch", "prog_bar"} or (ast.unparse(call.func.value) == "self" and not replaced)):
        return False
    return not words & {"sync_dist", "rank_zero_only"} and not is_constant(keyword(call, "on_epoch"), False)


def _is_own(log: ast.Call, function: Function, file: File) -> bool:
    """Whether what is logged is a plain loss or score, not a metric that reduces by itself, nor one of training."""
    given = [*log.args[:2], *(k.value for k in log.keywords if k.arg in ("name", "value", "dictionary"))]
    if not given or rank_guard(log, file) is not None:
        return False
    under, value = given[0], given[-1]
    of_training = any("train" in word for word in words_of(under))
    told = _LOOKS.search(function.name) or not isinstance(under, ast.Constant) or _EVALUATES.search(str(under.value))
    named = (under, value, *(values(value, file) if value is under else ()))
    scores = any(speaks_of(one, pattern) for one in named for pattern in (_LOSS, SCORE))
    return bool(told) and not of_training and scores and _is_plain(value, file, ())


def _is_plain(value: ast.expr, file: File, above: tuple[ast.expr, ...]) -> bool:
    """Whether a value is computed here, of what this process has. ``above``: what it is a part of."""
    if len(above) > _DEEPEST or isinstance(value, ast.Constant):
        return False
    within = (*above, value)
    if isinstance(value, ast.Name):
        stored = values(value, file)
        put = _put_in(value, file) if any(isinstance(one, ast.Dict) for one in stored) else []
        made = [one for one in (*stored, *put) if not _is_beginning(one) and one not in above]
        if made:
            return all(_is_plain(one, file, within) for one in made)
        return bool(above) and all(one in above for one in stored)  # as the function was given it
    if isinstance(value, ast.Attribute | ast.Subscript) and ast.unparse(value).startswith("self."):
        return False
    if isinstance(value, ast.Call):
        return _is_computed(value, file, within)
    parts = value.values if isinstance(value, ast.Dict) else list(ast.iter_child_nodes(value))
    return any(_is_plain(one, file, within) for one in parts if isinstance(one, ast.expr))


def _put_in(name: ast.Name, file: File) -> list[ast.expr]:
    """Return what a function stores under keys of its dictionary: ``sums[key][0] += loss``."""
    function = function_of(name, file)
    put: list[ast.expr] = []
    for at in own(function) if function is not None else ():
        targets = at.targets if isinstance(at, ast.Assign) else [at.target] if isinstance(at, ast.AugAssign) else []
        if isinstance(at, ast.Assign | ast.AugAssign) and name.id in (_container(target) for target in targets):
            put.append(at.value)
    return put


def _container(target: ast.expr) -> str:
    """Return the name of what an item is stored in, '' for what is no item."""
    inner = target
    while isinstance(inner, ast.Subscript):
        inner = inner.value
    return inner.id if isinstance(inner, ast.Name) and inner is not target else ""


def _is_beginning(value: ast.expr) -> bool:
    """``losses = []``, ``sums[key] = [0.0, 0]``: what is there before anything is computed."""
    parts = value.elts if isinstance(value, ast.List) else value.values if isinstance(value, ast.Dict) else [value]
    return all(isinstance(part, ast.Constant) for part in parts)


def _is_computed(call: ast.Call, file: File, within: tuple[ast.expr, ...]) -> bool:
    if _BY_ITSELF.search(tail_of(call)):
        return False
    if (called := function_called(call, file)) is not None:
        return not any(isinstance(at, ast.Call) and _BY_ITSELF.search(tail_of(at)) for at in own(called))
    parts: list[ast.expr] = call.args if tail_of(call) in _PASSES_ON else []
    if isinstance(call.func, ast.Attribute):
        if not isinstance(call.func.value, ast.Call) and ast.unparse(call.func.value).startswith("self"):
            return bool(_COMPUTES.search(call.func.attr))
        parts = parts or ([] if call.args else [call.func.value])
    inner = (one.value if isinstance(one, ast.Starred) else one for one in parts[:1])
    return all(_is_plain(one, file, within) for one in inner)


def _is_called_to_look(name: str, owner: ast.ClassDef) -> bool:
    """``self.shared(batch, "val")`` in a step, ``self.ended(outputs)`` at the end of an epoch."""
    hooks = (at for at in owner.body if isinstance(at, ast.FunctionDef) and _LOOKS.search(at.name))
    calls = ((at, hook) for hook in hooks for at in own(hook) if isinstance(at, ast.Call) and tail_of(at) == name)
    return any(not hook.name.endswith("epoch_end") or speaks_of(at, _GATHERED) for at, hook in calls)
