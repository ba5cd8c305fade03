"""Whether the parameters of all ranks begin alike where gradients are averaged by hand: seeds, wrappers, broadcasts."""

from __future__ import annotations

import ast
import itertools
import re

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import RANK_KINDS, Origins, function_called, origins, reached, values
from allranks.check.tree.syntax import class_of, given, name_of, tail_of

CHANCE = frozenset({"clock", "random", "identity"})
_SYNCED = re.compile("DistributedDataParallel|DDP|FullyShardedDataParallel|FSDP|fully_shard|broadcast|Accelerator")
# What the groups of a mesh are called by.
_AXIS = re.compile(
    r"(?i)(?<![a-z])(dp|ddp|data|tp|tensor|mp|model|pp|pipe|pipeline|cp|context|sp|sequence|ep|expert)(?![a-z])"
)
_SEVERAL = re.compile(r"^(\w+\.)*(world_size|num_processes|get_world_size\(\)) > 1$")
# What brings the values of all processes together.
_MEETS = frozenset({"broadcast_one_to_all", "process_allgather", "psum", "pmean", "all_gather"})
# They seed other generators than the one that parameters are drawn from.
_OTHER_SEEDS = ("random.seed", "numpy.random.seed")


def same_start(average: ast.Call, file: File) -> bool:
    """The model is wrapped or broadcast, comes from elsewhere, or the same seed is set on all processes (of those that
    average, if that is a ``group``); or the class where they average refuses to be one of several."""
    group = given(average, 2, "group")
    if _refuses_several(average, file):
        return True
    if "load_state_dict" in file.text or any(_SYNCED.search(word) for n in file.nodes for word in _used(n)):
        return True
    if not any(isinstance(n, ast.Call) and name_of(n, file).startswith("torch.nn.") for n in file.nodes):
        return True
    return any(_seeds_alike(n, file, group) for n in file.nodes if isinstance(n, ast.Call) and "seed" in tail_of(n))


def _refuses_several(node: ast.AST, file: File) -> bool:
    """What makes its objects raises where there are more processes than one."""
    kind = class_of(node, file)
    makers = (at for at in kind.body if isinstance(at, ast.FunctionDef) and at.name == "__init__") if kind else ()
    branches = (at for maker in makers for at in maker.body if isinstance(at, ast.If))
    return any(_SEVERAL.search(ast.unparse(at.test)) and isinstance(at.body[-1], ast.Raise) for at in branches)


def _used(node: ast.AST) -> tuple[str, ...]:
    """Return the name that code uses or defines at a node: what is imported alone does nothing."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        return (node.attr,)
    return (node.name,) if isinstance(node, ast.FunctionDef | ast.ClassDef) else ()


def _seeds_alike(seed: ast.Call, file: File, group: ast.expr | None) -> bool:
    """Whether a call seeds the parameters with what is the same on all; one of this file is asked what it calls."""
    if function_called(seed, file) is not None or name_of(seed, file) in _OTHER_SEEDS:
        return False
    made = frozenset().union(*(origins(one, file) for one in seed.args))
    if made & RANK_KINDS and not isinstance(group, ast.Constant | None) and not made & CHANCE:
        return _is_of_another_group(seed, group, made, file)
    return not made & (CHANCE | RANK_KINDS)


def _is_of_another_group(seed: ast.Call, group: ast.expr, made: Origins, file: File) -> bool:
    """The rank in the seed is that in groups which cross those that average: equal on all that do.

    ``manual_seed(dist.get_rank(tp_group))``, and gradients are averaged over ``dp_group``.
    """
    parts = [at for one in reached(seed, file) for at in walk(one)]
    named = {axis for one in reached(seed, file) for axis in _AXIS.findall(ast.unparse(one))}
    if ast.unparse(group) in [ast.unparse(at) for at in parts if isinstance(at, ast.expr)]:
        return False
    if not named.isdisjoint(_AXIS.findall(ast.unparse(group))):
        return False
    asked = [at for at in parts if isinstance(at, ast.Call) and name_of(at, file) == "torch.distributed.get_rank"]
    of_groups = bool(asked) and all(given(at, 0, "group") is not None for at in asked)
    return made & RANK_KINDS <= ({"group", "global"} if of_groups else {"group"})


def is_sent(key: ast.Call, file: File) -> bool:
    """It stands in a call that gives all processes what the first one has, or is made of what such a call gave, or of
    what a function of this file has brought together."""
    above = itertools.takewhile(lambda at: isinstance(at, ast.expr), file.parents(key))
    stored = [one for at in key.args[:1] for one in (at, *values(at, file)) if isinstance(one, ast.Call)]
    if any(isinstance(at, ast.Call) and tail_of(at) == "broadcast_one_to_all" for at in (*above, *stored)):
        return True
    makers = [function for one in stored if (function := function_called(one, file)) is not None]
    return any(isinstance(at, ast.Call) and tail_of(at) in _MEETS for maker in makers for at in walk(maker))
