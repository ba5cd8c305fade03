"""Which models of a file are kept in parts by FSDP, where that happens, and which optimizers are made of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import function_called, latest, may_be_skipped, passed, reached
from allranks.check.tree.syntax import function_of, inside, is_constant, keyword, name_of, own, tail_of

FSDP = "torch.distributed.fsdp.FullyShardedDataParallel"
FULLY_SHARD = "torch.distributed.fsdp.fully_shard"
_OPTIMIZER = re.compile(r"(?i)optim|adam|sgd|lion\b|adafactor|rmsprop|adagrad")
_DEEPEST = 4


def is_flat(model: ast.expr, file: File, depth: int = 0) -> bool:
    """Whether it is for certain a model that FSDP (not `fully_shard`) keeps in parts."""
    if isinstance(model, ast.Call):
        whole = "NO_SHARD" in ast.unparse(model)
        return name_of(model, file) == FSDP and not whole and not may_be_skipped(model, file)
    made = latest(model, file) or passed(model, file)
    if depth > _DEEPEST or not made:
        return False
    if isinstance(model, ast.Attribute):
        itself = ast.unparse(model)
        again = [at for at in made if isinstance(at, ast.Call) and at.args and ast.unparse(at.args[0]) == itself]
        made = [*again] or made
    return all(is_flat(one, file, depth + 1) for one in made)


def models_of(optimizer: ast.expr, file: File, depth: int = 0) -> Iterator[ast.expr]:
    """Yield the models whose parameters an optimizer of this file has."""
    if isinstance(optimizer, ast.Call):
        if is_optimizer(optimizer, file):
            yield from _parameters(optimizer, file)
        return
    for one in latest(optimizer, file) or passed(optimizer, file):
        if depth < _DEEPEST:
            yield from models_of(one, file, depth + 1)


def is_optimizer(call: ast.Call, file: File) -> bool:
    return name_of(call, file).startswith("torch.optim.") or bool(_OPTIMIZER.search(tail_of(call)))


def _parameters(optimizer: ast.Call, file: File) -> Iterator[ast.expr]:
    given = [*optimizer.args[:1], *(k.value for k in optimizer.keywords if k.arg == "params")]
    for at in (at for one in given for part in reached(one, file) for at in walk(part)):
        if isinstance(at, ast.Call) and isinstance(at.func, ast.Attribute) and "parameters" in at.func.attr:
            yield at.func.value


def made_too_early(wrap: ast.Call, file: File) -> ast.Call | None:
    """Return the optimizer of a model that is made above what puts the model into parts, and never again below."""
    model = _put_in_parts(wrap, file)
    if model is None:
        return None
    nodes = list(own(function_of(wrap, file) or file.tree))
    stored = [at for at in nodes if isinstance(at, ast.Assign) and isinstance(at.value, ast.Call)]
    ours = [(at, at.value) for at in stored if isinstance(at.value, ast.Call) and _is_of(at.value, model, file)]
    early = [(at, call) for at, call in ours if at.lineno < wrap.lineno and _arms(at, file) <= _arms(wrap, file)]
    targets = {ast.unparse(at.targets[0]) for at in stored if at.lineno > wrap.lineno}
    left = [call for at, call in early if ast.unparse(at.targets[0]) not in targets]
    return left[-1] if left and left[-1] is early[-1][1] else None


def _put_in_parts(call: ast.Call, file: File) -> str | None:
    """Return the model that a call puts into parts: itself, or as a function of this file that is given it."""
    if not call.args or not isinstance(call.args[0], ast.Name | ast.Attribute):
        return None
    model, name = ast.unparse(call.args[0]), name_of(call, file)
    if name == FSDP:
        kept = keyword(call, "use_orig_params")
        return model if kept is None or is_constant(kept, False) else None
    if name == FULLY_SHARD:
        return model
    function = function_called(call, file)
    if function is None or not function.args.args:
        return None
    first = function.args.args[-1 if len(function.args.args) == 1 else 0].arg
    shards = (at for at in own(function) if isinstance(at, ast.Call) and name_of(at, file) == FULLY_SHARD and at.args)
    return model if any(isinstance(at.args[0], ast.Name) and at.args[0].id == first for at in shards) else None


def _is_of(call: ast.Call, model: str, file: File) -> bool:
    return is_optimizer(call, file) and any(ast.unparse(one) == model for one in _parameters(call, file))


def _arms(node: ast.AST, file: File) -> set[tuple[int, bool]]:
    """Return the conditions around a place, and on which side of them it is."""
    pairs = ((above, child) for above, child in inside(node, file) if isinstance(above, ast.If))
    return {(id(above), child in above.body) for above, child in pairs}
