"""Where what is dealt out to processes is a multiple of their number: it is made so, cut so, or refused otherwise; or
where it is none of what they go through."""

from __future__ import annotations

import ast

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import RANK_KINDS, origins, values
from allranks.check.tree.splits import Split
from allranks.check.tree.syntax import function_of, inside, leaves, name_of, tail_of

_MOST = 40


def is_evened(split: Split, file: File) -> bool:
    """Whether its source, or where the slice stops, is reckoned with the number of processes."""
    parts: list[ast.AST] = [split.source]
    step = None
    if isinstance(split.node, ast.Subscript) and isinstance(split.node.slice, ast.Slice):
        parts += [split.node.slice.upper] if split.node.slice.upper is not None else []
        step = split.node.slice.step
    if any(_is_reckoned(at, step, file) for part in parts for at in _reached(part, file)):
        return True
    tests = (at for kind in (ast.If, ast.Assert) for at in file.kinds.get(kind, ()))
    return any(_refuses(at, file) for at in tests) or _is_of_shards(split, file)


def _is_of_shards(split: Split, file: File) -> bool:
    """Whether it stands in a function that a stream of WebDataset is given: that deals out shards, and how many samples
    come of them is another question."""
    function = function_of(split.node, file)
    if function is None or "webdataset" not in file.text:
        return False
    calls = (at for at in file.kinds.get(ast.Call, ()) if isinstance(at, ast.Call))
    streams = (at for at in calls if (name_of(at, file) or "").startswith("webdataset."))
    given = (one for at in streams for one in (*at.args, *(k.value for k in at.keywords)))
    return any(isinstance(one, ast.Name) and one.id == function.name for one in given)


def is_rest_of_all(split: Split, file: File) -> bool:
    """Whether the rest of a batch of all is cut by rank, if it is not to be dropped."""
    for parent, child in inside(split.node, file):
        if isinstance(parent, ast.For | ast.While):
            return False
        if isinstance(parent, ast.If) and child in parent.body and any(map(_keeps, walk(parent.test))):
            return True
    return False


def _keeps(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and tail_of(node.operand) == "drop_last"


def _is_reckoned(node: ast.AST, step: ast.expr | None, file: File) -> bool:
    """``n - n % world``, ``n // world``, ``batch * world``; whatever the ``step`` of a slice is called, by which it is
    dealt out."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mod | ast.FloorDiv | ast.Mult):
        return False
    sides = (node.left, node.right) if isinstance(node.op, ast.Mult) else (node.right,)
    return any(_is_number(side, file) or (step is not None and ast.dump(side) == ast.dump(step)) for side in sides)


def _is_number(node: ast.expr, file: File) -> bool:
    made = origins(node, file)
    return "size" in made and not made & RANK_KINDS


def _refuses(test: ast.AST, file: File) -> bool:
    """``if len(files) % world: raise ...``, ``assert len(files) % world == 0``"""
    if not isinstance(test, ast.Assert) and not (isinstance(test, ast.If) and leaves(test.body)):
        return False
    rests = (at for at in walk(test.test) if isinstance(at, ast.BinOp) and isinstance(at.op, ast.Mod))
    return any("len(" in ast.unparse(at.left) and _is_number(at.right, file) for at in rests)


def _reached(node: ast.AST, file: File) -> list[ast.AST]:
    """Return the nodes of an expression, and of what is stored under the names and attributes in it."""
    waiting, seen = [node], {id(node)}
    found: list[ast.AST] = []
    while waiting and len(seen) < _MOST:
        for at in walk(waiting.pop()):
            found.append(at)
            for value in values(at, file) if isinstance(at, ast.Name | ast.Attribute) else ():
                if id(value) not in seen:
                    seen.add(id(value))
                    waiting.append(value)
    return found
