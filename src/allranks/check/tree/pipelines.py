"""Pipelines of TensorFlow that a process puts in an order of its own, and that are dealt out by number below."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.sources.source import File
from allranks.check.tree.origins import MOST, latest
from allranks.check.tree.own_seeds import is_own_seed, is_seeded
from allranks.check.tree.splits import by_rank
from allranks.check.tree.syntax import (
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

# What seeds all that TensorFlow draws without a seed of its own.
SEEDERS = ("set_seed", "set_random_seed", "seed_everything")
# Call -> where it is told to shuffle, and its seed; who is not told shuffles.
_LISTS = {"list_files": ((1, "shuffle"), (2, "seed"))}
# What shuffles a list in its place.
LISTS = ("random.shuffle", "numpy.random.shuffle")
_STARTS = ("from_tensor_slices", "TFRecordDataset")
_OPENS = ("as_dataset", "load")


def ordered_alone(shard: ast.Call, file: File) -> ast.Call | None:
    """Return the call that draws the order of what ``pipeline.shard(n, i)`` deals out, each process by itself."""
    if not _is_tensorflow(file) or not isinstance(shard.func, ast.Attribute) or len(shard.args + shard.keywords) < 2:
        return None
    if not _deals(shard, file) or any(calls_of(file).get(word) for word in SEEDERS):
        return None
    drawn = (at for call in _above(shard, file) for at in ([call] if _draws(call, file) else _listed(call, file)))
    return next((call for call in drawn if not _are_apart(call, shard, file)), None)


def _is_tensorflow(file: File) -> bool:
    return any(dotted.partition(".")[0] in ("tensorflow", "tensorflow_datasets") for dotted in file.imports.values())


def _deals(shard: ast.Call, file: File) -> bool:
    """By the number of the process, or by what a function is given as the number of the part."""
    index = given(shard, 1, "index")
    return index is not None and (by_rank(index, file) or _is_parameter(index, file))


def _is_parameter(index: ast.expr, file: File) -> bool:
    """``def train(files, index, count)``"""
    functions = (above for above in file.parents(index) if isinstance(above, ast.FunctionDef))
    return isinstance(index, ast.Name) and any(index.id in _parameters(function) for function in functions)


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [one.arg for one in (*function.args.args, *function.args.kwonlyargs)]


def _above(shard: ast.Call, file: File) -> Iterator[ast.Call]:
    """Yield the calls that a pipeline has been through: ``files.shuffle(9).repeat().shard(n, i)``, also by name."""
    waiting: list[ast.expr] = [shard.func]
    seen: set[int] = set()
    while waiting and len(seen) < MOST:
        node = waiting.pop(0)
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, ast.Call):
            yield node
            waiting.append(node.func)
        elif isinstance(node, ast.Name | ast.Attribute):
            stored = [value for value in latest(node, file) if value.lineno <= node.lineno]
            waiting += stored or ([node.value] if isinstance(node, ast.Attribute) else [])


def _draws(call: ast.Call, file: File) -> bool:
    """It puts a pipeline in an order that no other process has."""
    last = tail_of(call)
    if last == "shuffle" and isinstance(call.func, ast.Attribute) and (call.args or call.keywords):
        return _is_alone(given(call, 1, "seed"), file)
    if last in _LISTS and "Dataset" in ast.unparse(call.func):
        told, seed = (given(call, *place) for place in _LISTS[last])
        return not is_constant(told, False) and _is_alone(seed, file)
    if last in _OPENS and keyword(call, "read_config") is None:
        told = keyword(call, "shuffle_files")
        known = last == "as_dataset" or name_of(call, file).startswith("tensorflow_datasets")
        return known and told is not None and not is_constant(told, False)
    return False


def _listed(call: ast.Call, file: File) -> list[ast.Call]:
    """Return who shuffles the list that a pipeline begins with: ``shuffle(files)``, ``from_tensor_slices(files)``."""
    if tail_of(call) not in _STARTS or not call.args:
        return []
    shuffles = [at for at in own(function_of(call, file) or file.tree) if isinstance(at, ast.Call) and at.args]
    mine = [at for at in shuffles if name_of(at, file) in LISTS and ast.dump(at.args[0]) == ast.dump(call.args[0])]
    return [at for at in mine if at.lineno < call.lineno and not is_seeded(at, file)]


def _is_alone(seed: ast.expr | None, file: File) -> bool:
    return seed is None or is_constant(seed, None) or is_own_seed(seed, file)


def _are_apart(one: ast.AST, other: ast.AST, file: File) -> bool:
    """They stand in two arms of a branch: who comes to one does not come to the other."""
    arms = {id(above): _arm(above, child) for above, child in inside(other, file) if isinstance(above, ast.If)}
    return any(
        id(above) in arms and arms[id(above)] != _arm(above, child)
        for above, child in inside(one, file)
        if isinstance(above, ast.If)
    )


def _arm(branch: ast.If, child: ast.AST) -> str:
    return "test" if child is branch.test else "body" if child in branch.body else "orelse"
