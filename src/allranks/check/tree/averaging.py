"""Training steps that JAX runs on each device, and that apply gradients which no device shares with the others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from allranks.check.sources.nodes import children, walk
from allranks.check.sources.source import File
from allranks.check.tree.mapped import Mapped
from allranks.check.tree.origins import function_called
from allranks.check.tree.syntax import arguments, name_of, tail_of, variables

# What returns gradients, or a function that does.
MAKERS = re.compile(r"^(filter_)?(value_and_)?grad$")
_LIBRARIES = frozenset({"jax", "flax", "equinox", "haiku"})
# What changes parameters by what it is given; ``tx.update`` and a difference are looked at by what goes in.
_APPLIES = ("apply_gradients", "apply_gradient", "apply_updates")
# What brings the values of all devices together.
_MEETS = re.compile(r"^(pmean|psum|pmax|psum_scatter|all_gather|all_to_all|ppermute|pmean_\w+|psum_\w+)$")
# What may do so, by its name.
_SYNCS = re.compile(
    r"(?i)all_?reduce|cross_?replica_(?!mean)|pmean|psum|mpi4jax|horovod|kfac"
    r"|(sync|average|avg|mean|reduce|aggregate|merge|share)\w*_(grads?|gradients?|params?|updates?|state|weights|model|tree)\b"
    r"|(grads?|gradients?|params?|updates?|weights|model)_\w*(sync|average|avg|mean|reduce|merge)"
)
# What is looked at, and trains nothing.
_MEASURED = re.compile(
    r"(?i)^(loss|metric|acc|aux|stat|correct|count|num|total|n_|lr|learning_rate|steps?$|epoch|norm|nll|entropy|ppl|perplexity|score|err|mse|mae|kl|value|"
    r"info|log|token|batch_?stats|mean|var|std|hit|top_?\d|denom|weight_sum|reward|return|psnr|ssim|elbo|bpd|bpc)|"
    r"(loss|losses|metrics?|acc|accuracy|aux|stats?|count|norm|logs?|error|nll|correct|psnr|entropy|lengths?)$"
)
# They are no parameters.
_STATISTICS = re.compile(r"batch_?stats|model_state|batch_norm")
_TRAINED = re.compile(r"(?i)grad|param|update|weight|theta|^g$|(^|_)state$|tree|\?")
_PARAMETERS = re.compile(r"^(p|w|params?|weights?|theta)$|_params$")
# Code of these hands nothing to other devices.
_KNOWN = frozenset({"jax", "optax", "flax", "numpy", "equinox", "haiku", "chex", "functools"})
_DEEPEST = 4
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def applied_alone(step: Mapped, file: File) -> ast.AST | None:
    """Return where a step changes parameters by gradients that are those of its own device; None where something may
    have brought them together, or code of another file is given them."""
    functions = list(_reached(step, file, _DEEPEST))
    nodes = [at for function in functions for at in walk(function)]
    names = _gradients(nodes, file)
    applied = next((at for at in nodes if _applies(at, names)), None)
    if applied is None or any(_is_shared(at, file) for at in nodes):
        return None
    before = (at for at in nodes if _line(at) <= _line(applied) and at is not applied)
    return None if any(_is_foreign(at, names, file) for at in before) else applied


def is_shared_elsewhere(file: File) -> bool:
    """Whether anything in a file speaks of bringing gradients or parameters together."""
    return file.once("shared elsewhere", file.tree, lambda _: any(_is_state_shared(at, file) for at in file.nodes))


def _is_state_shared(node: ast.AST, file: File) -> bool:
    word = _word(node)
    if _MEETS.search(word):
        return any(map(_TRAINED.search, _subject(node, file)))
    return bool(_SYNCS.search(word)) and not _STATISTICS.search(word)


def _word(node: ast.AST) -> str:
    """Return the last part of a name that is read."""
    read = isinstance(getattr(node, "ctx", None), ast.Load)
    return tail_of(node) if read and isinstance(node, ast.Name | ast.Attribute) else ""


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))


def _reached(function: ast.AST, file: File, most: int, seen: set[ast.AST] | None = None) -> Iterator[ast.AST]:
    """Yield a function, and those of this file that it calls or hands on."""
    seen = set() if seen is None else seen
    if function in seen or most < 0:
        return
    seen.add(function)
    yield function
    for at in walk(function):
        if not isinstance(at, ast.Call):
            continue
        for call in (at, *(ast.Call(one, [], []) for one in at.args if isinstance(one, ast.Name))):
            if (called := function_called(call, file)) is not None:
                yield from _reached(called, file, most - 1, seen)


def _gradients(nodes: Iterable[ast.AST], file: File) -> set[str]:
    """Return the names of gradients, and of what is made of them."""
    stores = [at for at in nodes if isinstance(at, ast.Assign)]
    makers = {t.id for at in stores for t in at.targets if isinstance(t, ast.Name) and _is_maker(at.value, file)}
    makers |= {
        at.name for at in nodes if isinstance(at, _FUNCTIONS) and any(_makes_maker(d, file) for d in at.decorator_list)
    }
    found: set[str] = set()
    for at in stores:
        if _makes(at.value, makers, file):
            found |= {name for target in at.targets for name in variables(target) if not _MEASURED.search(name)}
    before = -1
    while before < len(found):
        before = len(found)
        for at in stores:
            if not found.isdisjoint(variables(at.value)):
                found |= {name for target in at.targets for name in variables(target) if not _MEASURED.search(name)}
    return found | _taken(nodes, found)


def _taken(nodes: Iterable[ast.AST], names: set[str]) -> set[str]:
    """Return what a lambda calls the gradients that go through it: ``tree.map(lambda p, g: p - g, params, grads)``."""
    taken: set[str] = set()
    for at in nodes:
        if isinstance(at, ast.Call) and at.args and isinstance(at.args[0], ast.Lambda):
            for one, given in zip(at.args[0].args.args, at.args[1:], strict=False):
                taken |= set() if names.isdisjoint(variables(given)) else {one.arg}
    return taken


def _is_maker(node: ast.AST, file: File) -> bool:
    """``jax.value_and_grad(loss)``, not yet called."""
    return (
        isinstance(node, ast.Call)
        and bool(MAKERS.search(tail_of(node)))
        and name_of(node, file).partition(".")[0] in _LIBRARIES
    )


def _makes_maker(decorator: ast.expr, file: File) -> bool:
    """``@jax.value_and_grad``, bare or with options"""
    if isinstance(decorator, ast.Call) and decorator.args:
        decorator = decorator.args[0]
    return bool(MAKERS.search(tail_of(decorator))) and name_of(decorator, file).partition(".")[0] in _LIBRARIES


def _makes(node: ast.expr, makers: set[str], file: File) -> bool:
    calls = (at for at in walk(node) if isinstance(at, ast.Call))
    return any(_is_maker(at.func, file) or (isinstance(at.func, ast.Name) and at.func.id in makers) for at in calls)


def _is_shared(node: ast.AST, file: File) -> bool:
    """``node`` names what brings values of all devices together, and it is given something but measures."""
    word = _word(node)
    if _MEETS.search(word):
        return not all(map(_MEASURED.search, _subject(node, file)))
    return bool(_SYNCS.search(word)) and not _STATISTICS.search(word)


def _subject(node: ast.AST, file: File) -> list[str]:
    """Return the names of what is given to a collective: first in its call, or after it in that of ``tree.map``."""
    child, mapped = node, False
    for above in file.parents(node):
        if isinstance(above, ast.Lambda):
            mapped = True
        elif isinstance(above, ast.Call) and child is above.func and not mapped:
            names = _spoken(above.args[0], file) if above.args else set()
            around = next((p for p in file.parents(above) if isinstance(p, ast.Lambda | ast.stmt)), None)
            if not isinstance(around, ast.Lambda) or names.isdisjoint(a.arg for a in around.args.args):
                return sorted(names)
        elif isinstance(above, ast.Call) and (mapped or tail_of(above) != "partial"):
            if tail_of(above) in ("pmap", "shard_map"):
                return ["batch_stats"] if "batch_stats" in file.text else ["?"]
            return sorted(name for one in above.args if one is not child for name in _spoken(one, file))
        elif isinstance(above, ast.stmt):
            break
        child = above
    return ["?"]


def _spoken(node: ast.AST, file: File) -> set[str]:
    """Return the words for what is given: ``state.step`` is a step, ``{"loss": value}`` a loss."""
    if isinstance(node, ast.Name):
        return set() if node.id in file.imports else {node.id}
    if isinstance(node, ast.Attribute):
        return {node.attr}
    if isinstance(node, ast.Call):
        above = node.func.value if isinstance(node.func, ast.Attribute) and not name_of(node, file) else None
        return {w for one in (*node.args, *([above] if above is not None else ())) for w in _spoken(one, file)}
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        told = (
            {k.value} if isinstance(k, ast.Constant) and isinstance(k.value, str) else _spoken(v, file)
            for k, v in pairs
        )
        return set().union(*told)
    return {word for one in children(node) for word in _spoken(one, file)}


def _is_foreign(node: ast.AST, names: set[str], file: File) -> bool:
    """Gradients are handed to a function of another file."""
    if not isinstance(node, ast.Call) or names.isdisjoint(n for a in node.args for n in variables(a)):
        return False
    if function_called(node, file) is not None:
        return False
    base = node.func
    while isinstance(base, ast.Attribute):
        base = base.value
    imported = file.imports.get(base.id, "") if isinstance(base, ast.Name) else ""
    return bool(imported) and imported.partition(".")[0] not in _KNOWN


def _applies(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Call):
        inputs = arguments(node)
        if tail_of(node) == "update" and isinstance(node.func, ast.Attribute):
            return not _MEASURED.search(tail_of(node.func.value)) and any(
                isinstance(a, ast.Name) and a.id in names for a in inputs
            )
        return tail_of(node) in _APPLIES and any(not names.isdisjoint(variables(one)) for one in inputs)
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub):
        return False
    changed = isinstance(node.left, ast.Name | ast.Attribute) and bool(_PARAMETERS.search(tail_of(node.left)))
    return changed and not names.isdisjoint(variables(node.right))
