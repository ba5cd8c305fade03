"""Keys of JAX: which are the same on all devices or processes, and what draws with them there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tables.arrays import TREE_MAPS
from allranks.check.tables.seeds import KEYS
from allranks.check.tree.counts import scale
from allranks.check.tree.earlier import callers
from allranks.check.tree.mapped import MAPS, Mapped, how, mapped, parts
from allranks.check.tree.origins import RANK_KINDS, origins, passed, values
from allranks.check.tree.syntax import (
    calls_of,
    class_of,
    function_of,
    given,
    inside,
    is_called,
    keyword,
    name_of,
    own,
    tail_of,
    variables,
)

DRAWS = ("normal", "uniform", "truncated_normal", "bernoulli", "randint", "gumbel", "rademacher", "laplace", "bits")
_NAMED = re.compile(r"(^|_)(rngs?|keys?|prng)($|_)", re.IGNORECASE)
_ANY_KEY = re.compile(r"(^|_)(sub|new|next)?_?(rngs?|keys?|prng)\d*($|_)", re.IGNORECASE)
# Whoever asks for one of these in a function can make a key his own.
_PLACES = ("axis_index", "process_index")
# What does no harm where it is the same: keys are cut, each device puts the rows of its own in some order.
_HARMLESS = ("split", "fold_in", "permutation", "shuffle")
_KEPT_APART = frozenset([*_HARMLESS, *(name.rpartition(".")[2] for name in KEYS)])
# What makes parameters, or pictures to compare, is to be the same everywhere, and again and again.
_ALIKE = re.compile(r"(?i)init|param|dummy|fake_input|fixed|eval|test|val(id|$|_)|visual|preview|example")
_DEEPEST, _MOST = 6, 4


def is_shared(node: ast.expr, file: File, depth: int = 0) -> bool:
    """Say whether a key comes from a seed that all processes share: its way to ``PRNGKey`` is seen, and the rank is
    not on it."""
    if depth > _DEEPEST or origins(node, file) & RANK_KINDS:
        return False
    if isinstance(node, ast.Call):
        name = name_of(node, file)
        return name in KEYS or (
            name == "jax.random.split" and bool(node.args) and is_shared(node.args[0], file, depth + 1)
        )
    if isinstance(node, ast.Attribute):
        return any(is_shared(v, file, depth + 1) for v in _given_for(node, file)[:_MOST])
    if isinstance(node, ast.Name):
        stored, told = values(node, file)[:_MOST], passed(node, file)
        return any(is_shared(v, file, depth + 1) for v in stored) or (
            bool(told) and all(is_shared(v, file, depth + 1) for v in told)
        )
    return False


def _given_for(node: ast.Attribute, file: File) -> list[ast.expr]:
    """Return what a field of this class is made with in this file: ``State.create(dropout_rng=...)``."""
    owner = class_of(node, file)
    if owner is None or not isinstance(node.value, ast.Name) or node.value.id != "self" or not _is_run(node, file):
        return []
    made = (call for tail in ("create", owner.name) for call in calls_of(file).get(tail, ()))
    return [*values(node, file), *(value for call in made if (value := keyword(call, node.attr)) is not None)]


def is_copied(node: ast.expr, file: File, depth: int = 0) -> bool:
    """Say whether this is a key, or holds one: a tuple, or an object of a class that has one as a field and copies
    itself whole."""
    if depth > _DEEPEST:
        return False
    if isinstance(node, ast.Tuple | ast.List):
        return any(is_copied(part, file, depth + 1) for part in node.elts)
    if isinstance(node, ast.Name) and node.id == "self":
        return (
            _is_run(node, file)
            and bool(_fields(node, file))
            and next((p.attr for p in _above(node, file)), "") != "replace"
        )
    if isinstance(node, ast.Call):
        name = name_of(node, file)
        if name in KEYS and node.args and isinstance(node.args[0], ast.Constant):
            return depth > 0  # a number that stands right there is meant to be the same
        if name in TREE_MAPS and len(node.args) > 1:
            return is_copied(node.args[1], file, depth + 1)
        return name in KEYS or (name == "jax.random.split" and scale(given(node, 1, "num"), file) is None)
    return isinstance(node, ast.Name) and any(is_copied(v, file, depth + 1) for v in values(node, file)[:_MOST])


def _is_run(node: ast.AST, file: File) -> bool:
    """Say whether anything in this file calls the method around ``node``: ``state.replicate()``."""
    method = function_of(node, file)
    calls = calls_of(file).get(method.name, ()) if method is not None else ()
    return any(isinstance(call.func, ast.Attribute) and "jax_utils" not in name_of(call, file) for call in calls)


def takers(copies: ast.Call, file: File) -> list[Mapped]:
    """Return the functions under pmap that are given what ``copies`` gives, as far as this file shows them."""
    above, around = next(file.parents(copies), None), function_of(copies, file) or file.tree
    names = {ast.unparse(target) for target in above.targets} if isinstance(above, ast.Assign) else set()
    found = []
    for call in (above, *own(around)):
        if isinstance(call, ast.Call) and (copies in call.args or any(ast.unparse(a) in names for a in call.args)):
            made = [v for v in values(call.func, file) if isinstance(v, ast.Call) and name_of(v, file) in MAPS]
            found += [function for v in made if (function := mapped(v, file)) is not None]
    return found


def orders_alone(function: ast.AST, file: File) -> bool:
    """Say whether a function draws no more than orders of its own rows: with none of the keys that it names, and it
    gives none to others."""
    calls = [at for at in walk(function) if isinstance(at, ast.Call)]
    drawn = {tail_of(at) for at in calls if name_of(at, file).startswith("jax.random.")}
    others = (at for at in calls if not name_of(at, file).startswith(("jax.random.", "jax.lax.")))
    handed = (part for at in others for one in (*at.args, *at.keywords) for part in walk(one))
    return drawn <= _KEPT_APART and not any(_is_key(part) for part in handed)


def _is_key(node: ast.AST) -> bool:
    named = node.arg if isinstance(node, ast.keyword) else tail_of(node) if isinstance(node, ast.expr) else None
    return named is not None and _ANY_KEY.search(named) is not None


def asks_place(function: ast.AST) -> bool:
    """Say whether a function asks on which device, or in which process, it runs."""
    return any(word in ast.unparse(function) for word in _PLACES)


def _fields(node: ast.AST, file: File) -> list[str]:
    """Return the keys among the declared fields of the class around ``node``."""
    owner = class_of(node, file)
    declared = (at.target for at in owner.body if isinstance(at, ast.AnnAssign)) if owner is not None else ()
    return [at.id for at in declared if isinstance(at, ast.Name) and _NAMED.search(at.id)]


def _above(node: ast.AST, file: File) -> Iterator[ast.Attribute]:
    """Yield the attributes asked of a call that is given ``node``: ``replicate(self).replace``"""
    return (p for p in file.parents(node) if isinstance(p, ast.Attribute))


def by_own_devices(split: ast.Call, file: File) -> bool:
    """Say whether a key is split into one for each device of this process, or for each row of what it has."""
    found = scale(given(split, 1, "num"), file)
    return found is not None and found.processes <= 0 < found.own - found.processes


def draws_own_rows(draw: ast.Call, file: File) -> bool:
    """Say whether numbers are drawn for the rows of this process alone, again and again, for the training."""
    shapes = [at for at in (*draw.args[1:], keyword(draw, "shape")) if isinstance(at, ast.Tuple | ast.List)]
    sizes = [found for shape in shapes for part in shape.elts if (found := scale(part, file)) is not None]
    own_rows = any(found.processes <= 0 < found.own - found.processes for found in sizes)
    return own_rows and not (is_called(draw, _ALIKE, file) or _takes_of_own(draw, file)) and _repeats(draw, file)


def _takes_of_own(draw: ast.Call, file: File) -> bool:
    """Say whether what is drawn is there to take rows of what is this process' own: of a file of its own, of a part."""
    function = function_of(draw, file)
    taken = (at.value for at in own(function) if isinstance(at, ast.Subscript)) if function is not None else ()
    return any(isinstance(at, ast.Name) and origins(at, file) & RANK_KINDS for at in taken)


def _repeats(node: ast.AST, file: File, depth: int = 0) -> bool:
    """Say whether ``node`` stands in a loop, or is called from one, and is not there to be looked at."""
    function = function_of(node, file)
    if any(isinstance(parent, ast.For | ast.While) for parent, _ in inside(node, file)):
        return True
    if function is None or depth > _DEEPEST or _ALIKE.search(function.name):
        return False
    return any(_repeats(call, file, depth + 1) for call in callers(function, file))


def drawn_alike(maps: ast.Call, file: File) -> ast.Call | None:
    """Return where the function that ``maps`` runs on each device draws with a key that is the same on all of them,
    while its data, or what it gives, is not."""
    function = mapped(maps, file)
    if function is None or not maps.args or asks_place(function):
        return None
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args) if argument.arg != "self"]
    ways = parts(maps, file)
    cut = {name for name, way in zip(names, ways, strict=False) if way == "cut"}
    keys = {name for name, way in zip(names, ways, strict=False) if way == "whole" and _NAMED.search(name)}
    if not keys or not (cut or how(keyword(maps, "out_specs"), file) == "cut"):
        return None
    drawn = [at for at in walk(function) if isinstance(at, ast.Call) and name_of(at, file).startswith("jax.random.")]
    if any(tail_of(at) == "fold_in" and len(at.args) > 1 and variables(at.args[1]) & cut for at in drawn):
        return None
    if not any(tail_of(at) not in _HARMLESS for at in drawn) and "rngs=" not in ast.unparse(function):
        return None
    ours = [at for at in drawn if at.args and isinstance(at.args[0], ast.Name) and at.args[0].id in keys]
    return min(ours, key=lambda at: (at.lineno, at.col_offset), default=None)
