"""What JAX runs once on each device: the function that pmap or shard_map is given, how its arguments come, and whether
all devices and processes draw with the same key."""

from __future__ import annotations

import ast
from typing import TypeAlias

from allranks.check.knowledge.tables import load
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import RANK_KINDS, function_called, origins, passed, reached, values
from allranks.check.tree.syntax import arguments, calls_of, class_of, given, keyword, name_of, tail_of, variables
from allranks.check.tree.words import says

MAPS = ("jax.shard_map", "jax.experimental.shard_map.shard_map", "jax.pmap")
_PARTIAL = "functools.partial"
_SPECS = ("P", "PartitionSpec")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MOST = 4
DRAWS = ("normal", "uniform", "truncated_normal", "bernoulli", "randint", "gumbel", "rademacher", "bits")
_APART = ("process_index", "host_id", "axis_index", "rank")
_COPIES = ("replicate", "device_put_replicated")
_TAKE = ("rngs", "dropout_rng", "rng")
_DEEPEST = 5
Mapped: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def mapped(maps: ast.Call, file: File) -> Mapped | None:
    """Return the function that is mapped: given first, bare or in a partial, or below ``@partial(shard_map, ...)``."""
    above = next(file.parents(maps), None)
    if isinstance(above, _FUNCTIONS) and maps in above.decorator_list:
        return above
    return _meant(maps.args[0], file, _MOST) if maps.args else None


def _meant(given: ast.expr, file: File, most: int) -> Mapped | None:
    if isinstance(given, ast.Call) and name_of(given, file) == _PARTIAL and given.args:
        given = given.args[0]
    if isinstance(given, ast.Lambda):
        return given
    if isinstance(given, ast.Attribute):
        return _method(given, file)
    if not isinstance(given, ast.Name):
        return None
    around = (at for scope in file.parents(given) if isinstance(scope, (*_FUNCTIONS, ast.If)) for at in scope.body)
    inside = next((at for at in around if isinstance(at, _FUNCTIONS) and at.name == given.id), None)
    found = inside or function_called(ast.Call(given, [], []), file)
    stored = values(given, file) if found is None and most else []
    return _meant(stored[0], file, most - 1) if len(stored) == 1 else found


def _method(given: ast.Attribute, file: File) -> Mapped | None:
    """``jax.pmap(self._update)``"""
    owner = class_of(given, file)
    if owner is None or not isinstance(given.value, ast.Name) or given.value.id not in ("self", owner.name):
        return None
    return next((at for at in owner.body if isinstance(at, _FUNCTIONS) and at.name == given.attr), None)


def parts(maps: ast.Call, file: File) -> list[str]:
    """Return how each argument comes to the devices: ``cut``, ``whole``, or nobody knows (empty)."""
    found = keyword(maps, "in_specs") or keyword(maps, "in_axes")
    if isinstance(found, ast.Name) and len(stored := values(found, file)) == 1:
        found = stored[0]
    return [how(part, file) for part in found.elts] if isinstance(found, ast.Tuple | ast.List) else []


def how(spec: ast.expr | None, file: File) -> str:
    """``P("data")`` and 0 cut; ``P()`` and None leave whole."""
    if isinstance(spec, ast.Constant):
        return "whole" if spec.value is None else "cut"
    if isinstance(spec, ast.Name | ast.Attribute) and len(stored := values(spec, file)) == 1:
        spec = stored[0]
    if isinstance(spec, ast.Tuple):
        return "cut" if any(how(part, file) == "cut" for part in spec.elts) else ""
    if not isinstance(spec, ast.Call) or tail_of(spec) not in _SPECS:
        return ""
    return (
        "cut"
        if any(isinstance(at, ast.Constant) and isinstance(at.value, str) for at in walk(spec))
        else ("" if spec.args else "whole")
    )


def is_shared(key: ast.expr, file: File, depth: int = 0) -> bool:
    """Say whether a key comes from a seed that all processes share: its way to ``PRNGKey`` is seen."""
    if depth > _DEEPEST or origins(key, file) & RANK_KINDS or any(word in ast.unparse(key) for word in _APART):
        return False
    if isinstance(key, ast.Call):
        split = name_of(key, file) == "jax.random.split" and bool(key.args)
        return name_of(key, file) in load().signs["random_keys"] or (split and is_shared(key.args[0], file, depth + 1))
    if isinstance(key, ast.Subscript):
        return is_shared(key.value, file, depth + 1)
    if not isinstance(key, ast.Name | ast.Attribute):
        return False
    stored = [one for one in values(key, file) if one is not key]
    if any(origins(one, file) & RANK_KINDS or any(word in ast.unparse(one) for word in _APART) for one in stored):
        return False
    given_ones = [*stored, *passed(key, file), *_fields(key, file)]
    return any(is_shared(one, file, depth + 1) for one in given_ones[:4])


def _fields(key: ast.expr, file: File) -> list[ast.expr]:
    """Return what a field of this class is made with in this file: ``State.create(dropout_rng=...)``."""
    owner = class_of(key, file)
    if owner is None or not isinstance(key, ast.Attribute):
        return []
    made = (call for tail in ("create", owner.name) for call in calls_of(file).get(tail, ()))
    return [value for call in made if (value := keyword(call, key.attr)) is not None]


def drawn_alike(maps: ast.Call, file: File) -> ast.Call | None:
    """Return a draw in the function that ``maps`` runs on each device, whose key is the same on all devices."""
    function, kinds = mapped(maps, file), parts(maps, file)
    if function is None or isinstance(function, ast.Lambda) or (kinds and "cut" not in kinds):
        return None
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    if _folds(function, {name for name, kind in zip(names, kinds, strict=False) if kind == "cut"}):
        return None
    for at, parameter in enumerate(names):
        if not says(parameter, "keys"):
            continue
        copied = kinds[at] == "whole" if at < len(kinds) else _is_copied(maps, at, parameter, file)
        if copied and (draw := _draw_with(parameter, function, file)) is not None:
            return draw
    return None


def _folds(function: ast.AST, cut: set[str]) -> bool:
    """Whether a function makes its key another one on each device: by its index, or by what each has."""
    calls = [at for at in walk(function) if isinstance(at, ast.Call)]
    folded = [at.args[1] for at in calls if tail_of(at) == "fold_in" and len(at.args) > 1]
    by_index = any("index" in ast.unparse(one) or variables(one) & cut for one in folded)
    return by_index or any(tail_of(at) == "axis_index" for at in calls)


def _is_copied(maps: ast.Call, at: int, parameter: str, file: File) -> bool:
    """Whether what ``maps`` gives is called with a copy of one value for each device at this place."""
    above = next(file.parents(maps), None)
    names = {tail_of(one) for one in above.targets} if isinstance(above, ast.Assign) else set()
    found = [given(call, at, parameter) for name in names for call in calls_of(file).get(name, ())]
    made = (inner for one in found if one is not None for way in reached(one, file) for inner in walk(way))
    return any(isinstance(one, ast.Call) and tail_of(one) in _COPIES for one in made)


def _draw_with(parameter: str, function: ast.AST, file: File) -> ast.Call | None:
    """Return the first call in a function that draws with a key made of a parameter."""
    names = {parameter}
    for at in walk(function):
        if not (isinstance(at, ast.Assign) and isinstance(at.value, ast.Call) and names & variables(at.value)):
            continue
        if tail_of(at.value) in ("split", "fold_in"):
            names |= {one for target in at.targets for one in variables(target)}
    for at in walk(function):
        if not isinstance(at, ast.Call):
            continue
        taken = (
            [one.value for one in at.keywords if one.arg in _TAKE] if tail_of(at) not in ("init", "lazy_init") else []
        )
        if name_of(at, file).startswith("jax.random.") and tail_of(at) in DRAWS:
            taken += arguments(at)[:1]
        if any(names & variables(one) for one in taken):
            return at
    return None
