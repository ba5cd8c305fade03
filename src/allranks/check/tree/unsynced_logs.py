"""What Lightning's modules log of held-out data without bringing the processes' parts together."""

from __future__ import annotations

import ast
import re

from allranks.check.sources.source import File
from allranks.check.tree.syntax import bases_of, calls_of, class_of, function_of, keyword, own, speaks_of

# Where Lightning looks at data that it has split, and what it calls there for others to log in.
_LOOKS = re.compile(r"^(on_)?(validation|test)_(step|epoch_end)$")
_LOSS = re.compile(r"loss|nll|elbo|error|mse|mae", re.IGNORECASE)
_STRATEGY = re.compile(r"ddp|fsdp|deepspeed")
_SHARED = re.compile(r"compute\(|all_gather|gather|sync|reduce")
_EVALUATES = ("val", "eval", "test")


def is_unsynced(call: ast.Call, file: File) -> bool:
    """Whether ``self.log`` of a loss, in a hook that looks at held-out data, keeps to this process' part."""
    function, owner = function_of(call, file), class_of(call, file)
    if function is None or owner is None or not any(b.endswith("LightningModule") for b in bases_of(owner, file)):
        return False
    of_self = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "self"
    if not of_self or keyword(call, "sync_dist") is not None or keyword(call, "rank_zero_only") is not None:
        return False
    if _SHARED.search(ast.unparse(function)) or not _logs_loss(call):
        return False
    return bool(_LOOKS.search(function.name)) or _is_called_to_look(function.name, call, owner)


def decides(log: ast.Call, file: File) -> bool:
    """Whether the best checkpoint, or the end, is chosen by what is logged, under a trainer of several processes."""
    under = log.args[0] if log.args else keyword(log, "name")
    if not isinstance(under, ast.Constant) or not any(map(_has_several, calls_of(file).get("Trainer", ()))):
        return False
    watched = (keyword(call, "monitor") for calls in calls_of(file).values() for call in calls)
    return any(isinstance(name, ast.Constant) and name.value == under.value for name in watched)


def _has_several(trainer: ast.Call) -> bool:
    """``devices=8``, ``num_nodes=2``, ``strategy="ddp"``."""
    counts = (keyword(trainer, name) for name in ("devices", "gpus", "num_nodes"))
    many = any(isinstance(n, ast.Constant) and isinstance(n.value, int) and n.value > 1 for n in counts)
    strategy = keyword(trainer, "strategy")
    return many or (isinstance(strategy, ast.Constant) and bool(_STRATEGY.match(str(strategy.value))))


def _logs_loss(call: ast.Call) -> bool:
    """A plain value, not a metric that reduces by itself when it is computed."""
    given_ones = (*call.args, *(k.value for k in call.keywords if k.arg in ("value", "dictionary", "name")))
    if any(isinstance(one, ast.Attribute) and ast.unparse(one).startswith("self.") for one in given_ones):
        return False
    return any(speaks_of(one, _LOSS) for one in given_ones)


def _is_called_to_look(name: str, call: ast.Call, owner: ast.ClassDef) -> bool:
    """``self.shared(batch, "val")`` in a hook, of a method that logs under a name of that stage."""
    under = call.args[0] if call.args else keyword(call, "name")
    if isinstance(under, ast.Constant) and not any(word in str(under.value) for word in _EVALUATES):
        return False
    hooks = (at for at in owner.body if isinstance(at, ast.FunctionDef) and _LOOKS.search(at.name))
    calls = (at for hook in hooks for at in own(hook) if isinstance(at, ast.Call))
    return any(isinstance(at.func, ast.Attribute) and at.func.attr == name for at in calls)
