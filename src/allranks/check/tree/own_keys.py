"""Where a collective runs once for each key of a dictionary that this process has filled as its own data came.

The keys of losses and metrics are written down in the code, alike for all processes; what a batch has its targets under
is there only for who has met it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import values
from allranks.check.tree.syntax import function_of, inside, name_of, tail_of

_VIEWS = ("items", "keys", "values")
_COPIES = ("sorted", "list", "tuple", "enumerate", "tqdm")
# Whatever has such a name has keys that the code writes down.
_REDUCES = re.compile(r"^_?(all_?reduce|all_?gather|gather_object|average_(main|all)|reduce_(mean|sum|tensor|value))")
_ALIKE = re.compile(r"(?i)loss|metric|log|stat|scalar|info|time|weight|state|param|kwargs|config|output|result")


def met_by_key(loop: ast.For, file: File) -> ast.expr | None:
    """Return the dictionary of this process' own keys that ``loop`` goes through with a collective for each."""
    filled = _dictionary(loop.iter)
    filled = _copied(filled, file) if isinstance(filled, ast.Name) else filled
    if filled is None or not any(
        isinstance(at, ast.Call) and _meets(at, file) for part in loop.body for at in walk(part)
    ):
        return None
    return filled if any(_comes_with_data(at, file) for at in _fills(filled, loop, file)) else None


def _dictionary(over: ast.expr) -> ast.expr | None:
    if isinstance(over, ast.Call) and tail_of(over) in _COPIES and over.args:
        return _dictionary(over.args[0])
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr in _VIEWS:
        return _dictionary(over.func.value)
    return over if isinstance(over, ast.Name | ast.Attribute) else None


def _copied(name: ast.Name, file: File) -> ast.expr:
    """Return the dictionary of which another is made, key by key: ``{key: sums[key] / 2 for key in sums}``."""
    made = [at for at in values(name, file) if isinstance(at, ast.DictComp)]
    return _dictionary(made[0].generators[0].iter) or name if len(made) == 1 else name


def _meets(call: ast.Call, file: File) -> bool:
    name = name_of(call, file)
    if name.startswith("torch.distributed."):
        return "reduce" in name or "gather" in name
    return _REDUCES.search(tail_of(call)) is not None


def _fills(filled: ast.expr, loop: ast.For, file: File) -> Iterator[ast.Subscript]:
    """Yield where anything is stored in a dictionary of this name."""
    named, around = ast.unparse(filled), function_of(loop, file)
    for at in file.kinds.get(ast.Subscript, ()):
        assert isinstance(at, ast.Subscript)
        here = isinstance(filled, ast.Attribute) or function_of(at, file) is around
        if here and isinstance(at.ctx, ast.Store) and ast.unparse(at.value) == named:
            yield at


def _comes_with_data(at: ast.Subscript, file: File) -> bool:
    """``if key not in filled: filled[key] = ...`` in a loop over the keys of what the function was given."""
    function = function_of(at, file)
    if function is None or isinstance(at.slice, ast.Constant):
        return False
    blocks = [parent for parent, _ in inside(at, file)]
    first = any(isinstance(one, ast.If) and _asks_absent(one.test, at.value) for one in blocks)
    first = first or any(isinstance(one, ast.Call) and tail_of(one) == "defaultdict" for one in values(at.value, file))
    given = {argument.arg for argument in function.args.args} - {"self"}
    loops = (one.iter for one in blocks if isinstance(one, ast.For))
    over = (_dictionary(one) for one in loops if isinstance(one, ast.Call) and tail_of(one) in _VIEWS)
    return first and any(isinstance(one, ast.Name) and one.id in given and not _ALIKE.search(one.id) for one in over)


def _asks_absent(test: ast.expr, filled: ast.expr) -> bool:
    if not (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotIn)):
        return False
    return ast.unparse(test.comparators[0]) == ast.unparse(filled)
