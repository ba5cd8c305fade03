"""Where a file deals data out to processes by their rank."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import RANK_KINDS, Origins, names_ranks, origins, values
from allranks.check.tree.syntax import (
    Function,
    calls_of,
    function_of,
    given,
    inside,
    is_constant,
    keyword,
    name_of,
    own,
    tail_of,
)
from allranks.check.tree.words import mentions

# Methods of Accelerate, Fabric and Ray that deal out what a loader that they are given gives.
PREPARING = ("prepare", "prepare_data_loader", "setup_dataloaders")


@dataclass(frozen=True, slots=True)
class Split:
    """``node`` gives this process its part of ``source``. ``how``: every N-th (``stride``), a stretch (``block``), a
    test in a loop (``modulo``), a call of a library (``call``), or of something that is told the rank (``handed``).
    ``rank``: the expression that says which part."""

    node: ast.AST
    source: ast.expr
    how: Literal["stride", "block", "modulo", "call", "handed"]
    rank: ast.expr


def split_at(node: ast.AST, file: File) -> Split | None:
    """Return the split that ``node`` makes, if it makes one."""
    return file.once("split", node, lambda it: _split_at(it, file))


def _split_at(node: ast.AST, file: File) -> Split | None:
    if isinstance(node, ast.Subscript):
        return _slice(node, file) or _part(node, file) or _counted(node, file)
    if isinstance(node, ast.Compare):
        return _modulo(node, file)
    return _call(node, file) if isinstance(node, ast.Call) else None


def splits(tree: ast.AST, file: File) -> tuple[Split, ...]:
    """Return the splits in ``tree``."""
    return file.once("splits", tree, lambda it: _splits(it, file))


def _splits(tree: ast.AST, file: File) -> tuple[Split, ...]:
    found = (split_at(node, file) for node in walk(tree))
    return tuple(split for split in found if split is not None)


def handed_at(node: ast.AST, file: File) -> Split | None:
    """Return the split that a call leaves to what it calls: it is given data, the rank and the number of ranks."""
    if not isinstance(node, ast.Call) or not node.args or tail_of(node) in ("init_process_group", "DistributedSampler"):
        return None
    plain = [one for one in (*node.args, *(k.value for k in node.keywords)) if _is_plain(one)]
    if len(plain) < 2 or not names_ranks(file):
        return None
    made = [(one, origins(one, file)) for one in plain]
    ranks = [one for one, of in made if of & RANK_KINDS and not of & {"size", "sum"}]
    if not ranks or ranks[0] is node.args[0] or not any(of == {"size"} for _, of in made):
        return None
    return Split(node, node.args[0], "handed", ranks[0])


def _is_plain(node: ast.expr) -> bool:
    """A rank or a number of ranks as it is, or the call that asks for it."""
    return isinstance(node, ast.Name | ast.Attribute) or (isinstance(node, ast.Call) and not node.args)


def handed(tree: ast.AST, file: File) -> tuple[Split, ...]:
    """Return the splits in ``tree`` that are left to others."""
    if not names_ranks(file):
        return ()
    return file.once("handed", tree, lambda it: tuple(s for n in walk(it) if (s := handed_at(n, file)) is not None))


def by_rank(node: ast.AST | None, file: File) -> bool:
    return names_ranks(file) and bool(origins(node, file) & RANK_KINDS)


def _sized(node: ast.AST | None, file: File) -> bool:
    return "size" in origins(node, file)


def _slice(node: ast.Subscript, file: File) -> Split | None:
    part = node.slice
    if not isinstance(part, ast.Slice) or part.lower is None or (part.step is None and part.upper is None):
        return None
    if not by_rank(part.lower, file):
        return None
    if part.step is not None:
        return Split(node, node.value, "stride", part.lower)
    made: Origins = origins(part.lower, file)
    return Split(node, node.value, "block", part.lower) if part.upper is not None and "sum" in made else None


def _part(node: ast.Subscript, file: File) -> Split | None:
    """``array_split(xs, n)[rank]``"""
    inside = node.value
    if not isinstance(inside, ast.Call) or tail_of(inside) not in ("array_split", "chunk", "split", "tensor_split"):
        return None
    source = inside.args[0] if inside.args else None
    return Split(node, source, "call", node.slice) if source is not None and by_rank(node.slice, file) else None


def _counted(node: ast.Subscript, file: File) -> Split | None:
    """``xs[i]`` where ``i`` goes over ``range(rank, len(xs), n)`` or ``range(rank * k, rank * k + k)``"""
    if isinstance(node.slice, ast.Slice | ast.Constant):
        return None
    for name in (at for at in walk(node.slice) if isinstance(at, ast.Name)):
        for counts in values(name, file):
            if not isinstance(counts, ast.Call) or name_of(counts, file) != "range" or len(counts.args) < 2:
                continue
            start = counts.args[0]
            if not by_rank(start, file) or by_rank(node.value, file):
                continue
            if len(counts.args) == 3 and _sized(counts.args[2], file):
                return Split(node, node.value, "stride", start)
            if "sum" in origins(start, file):
                return Split(node, node.value, "block", start)
    return None


def _modulo(node: ast.Compare, file: File) -> Split | None:
    """``i % n == rank`` where ``i`` counts the items of a loop"""
    sides = [node.left, *node.comparators]
    if len(sides) != 2 or not isinstance(node.ops[0], ast.Eq | ast.NotEq):
        return None
    for one, other in (sides, sides[::-1]):
        if not isinstance(one, ast.BinOp) or not isinstance(one.op, ast.Mod) or not isinstance(one.left, ast.Name):
            continue
        if not by_rank(other, file) or by_rank(one, file) or not _sized(one.right, file):
            continue
        for value in values(one.left, file):
            if isinstance(value, ast.Call) and name_of(value, file) == "enumerate" and value.args:
                return Split(node, value.args[0], "modulo", other)
            if isinstance(value, ast.Call) and (source := _measured(value, file)) is not None and len(value.args) == 1:
                return Split(node, source, "modulo", other)
    return None


def _numbers(call: ast.Call, file: File) -> Split | None:
    """``range(rank, len(xs), n)``, kept: a loop over it is seen where it takes the items"""
    if len(call.args) != 3 or (source := _measured(call, file)) is None:
        return None
    above = next(file.parents(call), None)
    if isinstance(above, ast.For | ast.AsyncFor | ast.comprehension) or not by_rank(call.args[0], file):
        return None
    return Split(call, source, "stride", call.args[0]) if _sized(call.args[2], file) else None


def _measured(call: ast.Call, file: File) -> ast.expr | None:
    """Return ``xs`` of ``range(..., len(xs), ...)``."""
    end = call.args[min(1, len(call.args) - 1)] if call.args and name_of(call, file) == "range" else None
    inside = end.args if isinstance(end, ast.Call) and name_of(end, file) == "len" else []
    return inside[0] if inside else None


def _call(call: ast.Call, file: File) -> Split | None:
    name, last = name_of(call, file), tail_of(call)
    if name == "range":
        return _numbers(call, file)
    if name == "itertools.islice" and len(call.args) == 4:
        return Split(call, call.args[0], "stride", call.args[1]) if by_rank(call.args[1], file) else None
    if last == "split_dataset_by_node" and call.args:
        rank = given(call, 1, "rank")
        return Split(call, call.args[0], "call", rank) if rank is not None else None
    if last == "split_between_processes" and call.args:
        return Split(call, call.args[0], "call", call.func)
    if last == "shard" and isinstance(call.func, ast.Attribute) and len(call.args) + len(call.keywords) >= 2:
        rank = given(call, 1, "index")
        return Split(call, call.func.value, "call", rank) if rank is not None and by_rank(rank, file) else None
    return None


def deals_held_out(file: File) -> bool:
    """Whether a sampler, or the rank, deals the validation data out."""
    return file.once("held out", file.tree, lambda _: _deals_held_out(file))


def _deals_held_out(file: File) -> bool:
    calls = [n for n in file.kinds.get(ast.Call, ()) if isinstance(n, ast.Call)]
    samplers = [n for n in calls if name_of(n, file) == "torch.utils.data.DistributedSampler" and n.args]
    in_order = any(is_constant(keyword(sampler, "shuffle"), False) for sampler in samplers)
    if in_order or any(_is_of_held_out(sampler, file) or _is_called_held_out(sampler, file) for sampler in samplers):
        return True
    given_ones = [n.args[0] for n in samplers]
    given_ones += [one for n in calls if tail_of(n) in PREPARING for one in n.args]
    if any(mentions(one, "held_out") for one in given_ones):
        return True
    return any(mentions(split.source, "held_out") for split in splits(file.tree, file))


def _is_of_held_out(sampler: ast.Call, file: File) -> bool:
    """It is made, for whatever data, by a function of this file that is called for held-out data too."""
    function = function_of(sampler, file)
    if function is None or any(isinstance(above, ast.If | ast.IfExp) for above, _ in inside(sampler, file)):
        return False
    if not any(isinstance(at, ast.Name) and at.id in _names_of(function) for at in walk(sampler.args[0])):
        return False
    return any(mentions(_stored_from(call, file), "held_out") for call in calls_of(file).get(function.name, ()))


def _is_called_held_out(sampler: ast.Call, file: File) -> bool:
    """It, or the loader that it is given to where that is made, is stored under a name of held-out data."""
    made: ast.AST = sampler
    for above in file.parents(sampler):
        if isinstance(above, ast.Assign):
            return above.value is made and any(mentions(target, "held_out") for target in above.targets)
        if isinstance(above, ast.Call):
            made = above
        elif not isinstance(above, ast.keyword):
            return False
    return False


def _names_of(function: Function) -> set[str]:
    """Return the parameters of a function, and what it stores."""
    stored = {at.id for at in own(function) if isinstance(at, ast.Name) and isinstance(at.ctx, ast.Store)}
    return stored | {at.arg for at in walk(function.args) if isinstance(at, ast.arg)}


def _stored_from(call: ast.Call, file: File) -> ast.AST:
    """Return the statement that stores what a call gives, or the call."""
    above = next(file.parents(call), None)
    return above if isinstance(above, ast.Assign) else call
