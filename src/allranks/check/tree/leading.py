"""Where a process of a JAX program takes the number of all devices for that of its own: rows for pmap."""

from __future__ import annotations

import ast

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.counts import Scale, is_mapped, mapped, meshed, scale
from allranks.check.tree.origins import latest, values
from allranks.check.tree.syntax import calls_of, function_of, is_constant, keyword, name_of, own, tail_of

# Calls that make an array (or keys) with a leading axis; those of the second row make nothing of an array they have.
SHAPERS = ("reshape", "broadcast_to", "split", "rearrange")
STEPS = ("range",)
MAKERS = ("zeros", "ones", "full", "empty", "tile", "repeat", "array", "asarray", "stack")
BATCHING = ("batch", "padded_batch")
# Inside a computation, or on what was gathered, the rows of all devices are there.
_GATHERED = ("gather", "psum", "pmean", "axis_index", "all_to_all", "ppermute")


def leading(call: ast.Call, file: File) -> Scale | None:
    """Return the number of all devices, where ``call`` makes rows for pmap with it; None otherwise."""
    tail = tail_of(call)
    if tail in BATCHING:
        return _stacked_batches(call, file)
    if tail in STEPS:
        return _steps(call, file)
    axis = _axis(call, tail, file)
    found = scale(axis, file) if axis is not None else None
    if found is None or not found.all_devices or _is_gathered(call, file) or _takes_its_own(call, file):
        return None
    if meshed(file) or (tail in MAKERS and not _copies(call, file)) or (tail == "split" and not mapped(file)):
        return found if _is_given_to_mapped(call, file) else None
    return found


def _axis(call: ast.Call, tail: str, file: File) -> ast.expr | None:
    """Return the leading axis of the shape that ``call`` makes, or how many keys it makes."""
    arguments, dotted = list(call.args), name_of(call, file)
    if tail == "rearrange":
        return _named_axis(call)
    if tail == "split":
        many = keyword(call, "num") or _at(arguments, 1)
        return _but_one(many) if dotted == "jax.random.split" or _splits(call) else None
    if tail in ("array", "asarray", "stack"):
        return _times(_at(arguments, 0))
    is_function = tail in ("broadcast_to", "tile", "repeat") or dotted.startswith(("jax.numpy.", "numpy."))
    if is_function and tail not in ("zeros", "ones", "full", "empty"):
        arguments = arguments[1:]
    shape = keyword(call, "shape") or keyword(call, "newshape") or _at(arguments, 0)
    shape = _first_part(shape)
    if isinstance(shape, ast.Name | ast.Attribute) and len(stored := latest(shape, file)) == 1:
        shape = _first_part(stored[0]) if isinstance(stored[0], ast.Tuple | ast.List | ast.BinOp) else shape
    if isinstance(shape, ast.Tuple | ast.List):
        return _at(shape.elts, 0)
    return shape


def _first_part(shape: ast.expr | None) -> ast.expr | None:
    """``(n, -1) + x.shape[1:]``: (n, -1)"""
    while isinstance(shape, ast.BinOp) and isinstance(shape.op, ast.Add):
        shape = shape.left
    return shape


def _but_one(number: ast.expr | None) -> ast.expr | None:
    """``n + 1``, of which one key is kept: n"""
    kept = isinstance(number, ast.BinOp) and isinstance(number.op, ast.Add) and is_constant(number.right, 1)
    return number.left if kept and isinstance(number, ast.BinOp) else number


def _at(nodes: list[ast.expr], position: int) -> ast.expr | None:
    found = nodes[position] if position < len(nodes) else None
    return None if isinstance(found, ast.Starred) else found


def _splits(call: ast.Call) -> bool:
    """A method that splits keys: ``key.split(n)``"""
    return isinstance(call.func, ast.Attribute) and any(
        w in ast.unparse(call.func.value).lower() for w in ("rng", "key")
    )


def _times(node: ast.expr | None) -> ast.expr | None:
    """``[x] * n``, ``[x for _ in range(n)]``: n"""
    if isinstance(node, ast.ListComp) and isinstance(again := node.generators[0].iter, ast.Call):
        return _at(again.args, 0) if tail_of(again) == "range" and len(again.args) == 1 else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for one, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(one, ast.List):
                return other
    return None


def _named_axis(call: ast.Call) -> ast.expr | None:
    """``rearrange(x, "(d b) c -> d b c", d=n)``: n, if it comes first behind the arrow."""
    pattern = next((a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)), "")
    first = pattern.rpartition("->")[2].split()
    return keyword(call, first[0]) if first else None


def _is_gathered(call: ast.Call, file: File) -> bool:
    """The rows of all devices are there: devices themselves, what was gathered, a computation on all devices."""
    text = ast.unparse(call.func)
    if "devices" in text or any(word in text for word in _GATHERED):
        return True
    function = function_of(call, file)
    calls = (at for at in own(function) if isinstance(at, ast.Call)) if function is not None else ()
    return any(any(word in tail_of(at) for word in _GATHERED) for at in calls)


def _takes_its_own(call: ast.Call, file: File) -> bool:
    """Whether a process takes its part by its number: ``split(key, n).reshape(...)[jax.process_index()]``, or later
    of the whole, or of as many parts: ``array_split(keys, jax.process_count())[jax.process_index()]``."""
    whole: ast.AST = call
    for above in file.parents(call):
        if isinstance(above, ast.Subscript) and above.value is whole:
            return _says(above.slice, "process_index", file)
        if not (isinstance(above, ast.Attribute) or (isinstance(above, ast.Call) and above.func is whole)):
            break
        whole = above
    if not isinstance(above, ast.Assign) or not isinstance(target := above.targets[0], ast.Name | ast.Attribute):
        return False
    named, scope = ast.unparse(target), function_of(call, file) or file.tree
    parts = (at for at in own(scope) if isinstance(at, ast.Subscript) and at.lineno > call.lineno)
    return any(_is_whole(part.value, named, file) and _says(part.slice, "process_index", file) for part in parts)


def _is_whole(node: ast.expr, named: str, file: File) -> bool:
    """It is what bears this name, also cut in as many parts as there are processes."""
    if isinstance(node, ast.Call) and len(node.args) == 2 and _says(node.args[1], "process_count", file):
        node = node.args[0]
    return ast.unparse(node) == named


def _says(node: ast.expr, word: str, file: File) -> bool:
    """Whether it, or what is stored in a name in it, is made of this."""
    names = [at for at in walk(node) if isinstance(at, ast.Name | ast.Attribute)]
    stored = [value for name in names for value in values(name, file)]
    return any(word in ast.unparse(one) for one in (node, *stored))


def _is_given_to_mapped(call: ast.Call, file: File) -> bool:
    """What ``call`` makes is passed to a function that pmap has made."""
    above = next(file.parents(call), None)
    if isinstance(above, ast.keyword):
        above = next(file.parents(above), None)
    if isinstance(above, ast.Call) and above.func is not call:
        return is_mapped(above.func, file)
    if not isinstance(above, ast.Assign) or not isinstance(target := above.targets[0], ast.Name | ast.Attribute):
        return False
    named, scope = ast.unparse(target), function_of(call, file) or file.tree
    return any(
        any(ast.unparse(given) == named for given in (*at.args, *(k.value for k in at.keywords)))
        and is_mapped(at.func, file)
        for at in own(scope)
        if isinstance(at, ast.Call)
    )


def _copies(call: ast.Call, file: File) -> bool:
    """It is done to each leaf of a tree, in a file that gives trees to pmap: a copy for each device."""
    function = next((p for p in file.parents(call) if isinstance(p, ast.Lambda)), None)
    above = next(file.parents(function), None) if function is not None else None
    return mapped(file) and isinstance(above, ast.Call) and tail_of(above) in ("tree_map", "map")


def _steps(call: ast.Call, file: File) -> Scale | None:
    """``for i in range(0, rows, n)``, where each round is given to a function that pmap has made."""
    step = scale(_at(call.args, 2), file)
    above = next(file.parents(call), None)
    if step is None or not step.all_devices or not isinstance(above, ast.For):
        return None
    calls = (at for part in above.body for at in walk(part) if isinstance(at, ast.Call))
    return step if any(is_mapped(at.func, file) for at in calls) else None


def _stacked_batches(call: ast.Call, file: File) -> Scale | None:
    """``rows.batch(size // n).batch(n)``: the second one makes the leading axis for pmap."""
    found = scale(keyword(call, "batch_size") or _at(call.args, 0), file)
    if found is None or not found.all_devices or not isinstance(call.func, ast.Attribute):
        return None
    scope = function_of(call, file) or file.tree
    others = (at for tail in BATCHING for at in calls_of(file).get(tail, ()) if at is not call)
    return (
        found
        if any(at.lineno <= call.lineno and (function_of(at, file) or file.tree) is scope for at in others)
        else None
    )


def collected(test: ast.Compare, file: File) -> Scale | None:
    """Return the number of all devices, where a generator yields after as many batches, each cut by that number."""
    if len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq | ast.GtE):
        return None
    found = next((s for side in (test.left, *test.comparators) if (s := scale(side, file)) and s.all_devices), None)
    function = function_of(test, file)
    above = next(file.parents(test), None)
    if found is None or function is None or not isinstance(above, ast.If):
        return None
    yields = any(isinstance(at, ast.Yield) for at in walk(above))
    return found if yields and any(_is_cut(at, file) for at in own(function)) else None


def _is_cut(node: ast.AST, file: File) -> bool:
    """A size is divided by the number of all devices."""
    if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div | ast.FloorDiv):
        by = scale(node.right if isinstance(node, ast.BinOp) else node.value, file)
        return by is not None and by.all_devices
    return False
