"""A step of training whose loss the model inside a wrapper computes: the wrapper is never called."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import function_called, values
from allranks.check.tree.syntax import (
    Function,
    calls_of,
    class_of,
    function_of,
    inside,
    name_of,
    own,
    places_in,
    tail_of,
)

_WRAPPERS = ("torch.nn.parallel.DistributedDataParallel", "apex.parallel.DistributedDataParallel")
# What a model of its own kind is asked for, of which nobody learns.
_TELLS = ("state_dict", "parameters", "train", "eval", "to", "cuda", "cpu", "half", "float", "no_sync", "apply")
_QUIET = ("no_grad", "inference_mode")
_DEEPEST = 2


def bypass(function: Function, file: File) -> ast.Call | None:
    """Return the call of the model inside a wrapper of this file whose loss a step of training goes back from."""
    wrapped = file.once("wrapped for several", file.tree, lambda _: _wrapped(file))
    if not wrapped:
        return None
    calls = (at for at in own(function) if isinstance(at, ast.Call) and not _is_quiet(at, file))
    for call in calls:
        outer = _wrapper_of(call.func, file)
        if outer is not None and tail_of(outer) in wrapped:
            wrapper = ast.unparse(outer)
        elif (beside := _wrapper_beside(call, function, file)) is not None:
            wrapper = ast.unparse(beside)
        else:
            continue
        if _is_learned_from(call, function, wrapper, file, 0):
            return call
    return None


def _wrapper_beside(call: ast.Call, function: Function, file: File) -> ast.expr | None:
    """Return the wrapper of a model that is called itself, though both are kept: ``self.ddp = DDP(self.net)``. None if
    anybody calls the wrapper, or is given it."""
    model = call.func
    for wraps, target in file.once("wrapped beside", file.tree, lambda _: _kept_beside(file)):
        if ast.unparse(wraps.args[0]) == ast.unparse(model):
            of_object = isinstance(target, ast.Attribute) and class_of(wraps, file) is class_of(call, file) is not None
            below = function_of(wraps, file) is function and wraps.lineno < call.lineno
            if of_object or (isinstance(target, ast.Name) and below):
                return target
    return None


def _kept_beside(file: File) -> list[tuple[ast.Call, ast.expr]]:
    """Return the calls that wrap a model which keeps its own name, with what the wrapper is stored under, where that is
    asked for its attributes alone."""
    found = []
    for call in calls_of(file).get("DistributedDataParallel", ()):
        above = next(file.parents(call), None)
        if name_of(call, file) not in _WRAPPERS or not call.args or not isinstance(above, ast.Assign):
            continue
        model, target = call.args[0], above.targets[0]
        kept = all(isinstance(one, ast.Name | ast.Attribute) for one in (model, target))
        if not kept or tail_of(model) == tail_of(target) or len(above.targets) > 1:
            continue
        uses = (at for at in file.nodes if isinstance(at, ast.Name | ast.Attribute) and tail_of(at) == tail_of(target))
        if all(at is target or _is_asked(at, file) for at in uses):
            found.append((call, target))
    return found


def _is_asked(wrapper: ast.expr, file: File) -> bool:
    """``ddp.parameters()``, ``ddp.module``: what is not called, and handed on to nobody."""
    above = next(file.parents(wrapper), None)
    return isinstance(above, ast.Attribute) and above.attr not in ("forward", "__call__")


def _wrapped(file: File) -> frozenset[str]:
    """Return the last parts of the names under which the file keeps wrapped models; none if it averages gradients."""
    calls = [at for at in calls_of(file).get("DistributedDataParallel", ()) if name_of(at, file) in _WRAPPERS]
    if not calls or any(map(_averages, file.code)):
        return frozenset()
    stored = (above for call in calls if isinstance(above := next(file.parents(call), None), ast.Assign))
    return frozenset(tail_of(target) for above in stored for target in above.targets)


def _averages(line: str) -> bool:
    """Whether a line averages gradients by itself."""
    text = line.lower()
    named = any("grad" in text.partition(word)[2] for word in ("average", "reduce", "sync"))
    return named or any(word in text.partition("grad")[2] for word in ("allreduce", "all_reduce"))


def _wrapper_of(called: ast.expr, file: File) -> ast.expr | None:
    """Return ``model`` of ``model.module``, of one of its methods, or of a name that this is stored under."""
    parts = [called.value, called] if isinstance(called, ast.Attribute) else [called]
    if isinstance(called, ast.Attribute) and (called.attr in _TELLS or called.attr.startswith(("named_", "register_"))):
        return None
    for part in parts:
        for one in (part, *(values(part, file) if isinstance(part, ast.Name) else _stands_for(part, file))):
            if isinstance(one, ast.Attribute) and one.attr == "module" and tail_of(one.value) not in ("", "self"):
                return one.value
    return None


def _stands_for(attribute: ast.expr, file: File) -> list[ast.expr]:
    """Return what an attribute of an object was made of here, or what the property of that name gives."""
    owner = class_of(attribute, file)
    if not isinstance(attribute, ast.Attribute) or owner is None or ast.unparse(attribute.value) != "self":
        return []
    methods = [at for at in owner.body if isinstance(at, ast.FunctionDef) and at.name == attribute.attr]
    ends = [at.body[-1] for at in methods if any(tail_of(one) == "property" for one in at.decorator_list)]
    given = [at.value for at in ends if isinstance(at, ast.Return) and at.value is not None]
    stored = values(attribute, file)
    return given or (stored if len(stored) == 1 else [])


def _is_quiet(call: ast.Call, file: File) -> bool:
    """Nobody learns from what is computed there."""
    around = [
        item.context_expr for above, _ in inside(call, file) if isinstance(above, ast.With) for item in above.items
    ]
    function = function_of(call, file)
    return any(tail_of(one) in _QUIET for one in (*around, *(function.decorator_list if function else ())))


def _is_learned_from(call: ast.Call, function: Function, wrapper: str, file: File, depth: int) -> bool:
    """Whether what a call gives is gone back from, here or by who calls this function, and nothing on the way calls
    the wrapper."""
    if _calls_wrapper(function, wrapper, file, _DEEPEST):
        return False
    names = _made_of(call, function)
    nodes = own(function)
    if any(_goes_back(at, call, names) for at in nodes):
        return True
    given = (at.value for at in nodes if isinstance(at, ast.Return) and at.value is not None)
    if depth == _DEEPEST or not any(call in walk(one) or names & places_in(one) for one in given):
        return False
    others = (at for at in calls_of(file).get(function.name, ()) if function_called(at, file) is function)
    around = ((at, above) for at in others if (above := function_of(at, file)) is not None and above is not function)
    return any(_is_learned_from(at, above, wrapper, file, depth + 1) for at, above in around)


def _calls_wrapper(function: Function, wrapper: str, file: File, depth: int) -> bool:
    calls = [at for at in own(function) if isinstance(at, ast.Call)]
    if any(ast.unparse(at.func) in (wrapper, f"{wrapper}.forward") for at in calls):
        return True
    below = (function_called(call, file) for call in calls) if depth else ()
    return any(
        _calls_wrapper(one, wrapper, file, depth - 1) for one in below if one is not None and one is not function
    )


def _made_of(call: ast.Call, function: Function) -> set[str]:
    """Return the names in a function of what is made of the result of a call."""
    names: set[str] = set()
    for at in own(function):
        value = at.value if isinstance(at, ast.Assign | ast.AugAssign | ast.AnnAssign) else None
        if value is not None and (any(one is call for one in walk(value)) or names & places_in(value)):
            names.update(_targets(at))
        elif isinstance(at, ast.For) and names & places_in(at.iter):
            names |= places_in(at.target)
    return names


def _targets(assignment: ast.AST) -> Iterator[str]:
    targets: Sequence[ast.expr] = getattr(assignment, "targets", None) or [assignment.target]  # type: ignore[attr-defined]
    for target in targets:
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        for part in parts:
            base = part
            while isinstance(base, ast.Subscript):
                base = base.value
            yield ast.unparse(base)


def _goes_back(node: ast.AST, call: ast.Call, names: set[str]) -> bool:
    """``loss.backward()``, ``scaler.scale(loss).backward()``, ``accelerator.backward(loss)``"""
    if not isinstance(node, ast.Call) or tail_of(node) != "backward":
        return False
    return any(one is call for one in walk(node)) or bool(names & places_in(node))
