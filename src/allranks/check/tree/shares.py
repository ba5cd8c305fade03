"""Loaders that are left out where a file divides its data among the processes."""

from __future__ import annotations

import ast

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import RANK_KINDS, names_ranks, origins, reached
from allranks.check.tree.splits import PREPARING, by_rank
from allranks.check.tree.syntax import arguments, calls_of, function_of, given, name_of, tail_of, words_of
from allranks.check.tree.words import mentions, says

_ORDERS = frozenset({"permutation", "randperm", "shuffle"})
_SAMPLER = "torch.utils.data.DistributedSampler"
# What takes a loader, and gives the same one to a loop.
_PASSES = ("len", "enumerate", "tqdm", "iter", "zip", "skip_first_batches", "cycle", "print", "hasattr", "isinstance")


def unshared(loader: ast.Call, file: File) -> str:
    """Return how a loader without a sampler is left out, '' if it is not."""
    above = next(file.parents(loader), None)
    if any(says(name, "of_step") for name in words_of(loader.args[0])):
        return ""
    target = above.targets[0] if isinstance(above, ast.Assign) and len(above.targets) == 1 else None
    prepares = [at for word in PREPARING for at in calls_of(file).get(word, ()) if mentions(at.func, "accelerator")]
    if _leaves_sampler(loader, file):
        return "the distributed sampler of its data is made, and this loader does not get it"
    if prepares:
        left = target is not None and file.says("backward(") and _is_only_gone_over(target, file)
        return (
            f"{ast.unparse(target)} is not prepared: every process loads the whole data set" if left and target else ""
        )
    size = given(loader, 1, "batch_size")
    if size is not None and _is_share(size, file):
        return "its batch size is the share of one process, and every process loads the whole data set"
    return ""


def _leaves_sampler(loader: ast.Call, file: File) -> bool:
    """Whether a distributed sampler of the same data is made in its function, and no loader gets it."""
    function, data = function_of(loader, file), ast.unparse(loader.args[0])
    for made in calls_of(file).get("DistributedSampler", ()):
        if name_of(made, file) == _SAMPLER and made.args and ast.unparse(made.args[0]) == data:
            above = next(file.parents(made), None)
            if function_of(made, file) is function and isinstance(above, ast.Assign):
                return not _is_passed(ast.unparse(above.targets[0]), file)
    return False


def _is_passed(name: str, file: File) -> bool:
    """Whether something is given what is stored under a name."""
    calls = (at for at in file.kinds.get(ast.Call, ()) if isinstance(at, ast.Call))
    return any(name in ast.unparse(one) for call in calls for one in arguments(call))


def _is_only_gone_over(target: ast.expr, file: File) -> bool:
    """Whether a loader is used in loops alone, and given to nobody who may divide it."""
    name = ast.unparse(target)
    kinds = [*file.kinds.get(ast.Name, ()), *file.kinds.get(ast.Attribute, ())]
    uses = [at for at in kinds if isinstance(at.ctx, ast.Load) and ast.unparse(at) == name]
    above = [next(file.parents(at), None) for at in uses]
    loops = [
        at
        for at in above
        if isinstance(at, ast.For | ast.IfExp) or (at is not None and tail_of(at)) in ("enumerate", "tqdm")
    ]
    known = (isinstance(at, ast.For | ast.IfExp | ast.Attribute) or _passes(at) for at in above)
    return bool(loops) and all(known)


def _passes(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and tail_of(node) in _PASSES


def _is_share(size: ast.expr, file: File) -> bool:
    """Whether a batch size is divided by the number of processes: ``batch // world_size``."""
    made = [at for one in reached(size, file) for at in walk(one) if isinstance(at, ast.BinOp)]
    return any(isinstance(at.op, ast.FloorDiv | ast.Div) and origins(at.right, file) == {"size"} for at in made)


def ordered_without_rank(reader: ast.ClassDef | ast.FunctionDef, file: File) -> list[ast.AST]:
    """Return where a class or generator orders data and yields them, if it knows of the other processes and never uses
    which of them it is; else nothing."""
    nodes = walk(reader)
    calls = {tail_of(at): at for at in nodes if isinstance(at, ast.Call)}
    orders = [at for name, at in calls.items() if name in _ORDERS]
    if not orders or not names_ranks(file) or says(reader.name, "held_out"):
        return []
    yields = [at for at in nodes if isinstance(at, ast.Yield | ast.YieldFrom)]
    methods = [at for at in nodes if isinstance(at, ast.FunctionDef)]
    numbers = any(at.name == "__getitem__" or "abstract" in ast.unparse(at) for at in methods)
    heirs = (at for at in file.kinds.get(ast.ClassDef, ()) if isinstance(at, ast.ClassDef))
    numbers = numbers or any(tail_of(base) == reader.name for heir in heirs for base in heir.bases)
    divides = any("ampler" in name or "shard" in name for name in calls)
    if numbers or divides or not (yields or isinstance(reader, ast.ClassDef)):
        return []
    kept = {id(one) for at in nodes if isinstance(at, ast.Assign) and _keeps(at) for one in walk(at.value)}
    values = [at for at in nodes if isinstance(at, ast.Name | ast.Attribute | ast.Call) and id(at) not in kept]
    if any(origins(at, file) & RANK_KINDS for at in values if not isinstance(getattr(at, "ctx", None), ast.Store)):
        return []
    sums = any(isinstance(at, ast.BinOp) and "size" in origins(at, file) for at in nodes)
    knows = sums or any(by_rank(at.value, file) for at in nodes if isinstance(at, ast.Assign) and _keeps(at))
    return [*orders[:1], *yields[:1]] if knows else []


def _keeps(assign: ast.Assign) -> bool:
    """``self.rank = rank``"""
    target = assign.targets[0]
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    return all(isinstance(one, ast.Attribute) and tail_of(one.value) == "self" for one in parts)
