"""Whether a file brings to the CPU what it saves, so that whoever loads it does so there."""

from __future__ import annotations

import ast
import re

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import reached
from allranks.check.tree.syntax import calls_of, function_of, name_of, tail_of

# Functions that bring what they are given to the CPU, as their names say: ``weights_to_cpu(model.state_dict())``.
_TO_CPU = re.compile(r"(?i)^cpu$|(^|_)to_cpu$")


def saves_from_cpu(call: ast.Call, file: File) -> bool:
    """What this file saves is brought to the CPU first: by ``save_x`` for ``load_x``, by the function that loads, or
    else by any that saves."""
    saves = (at for at in calls_of(file).get("save", ()) if name_of(at, file) == "torch.save")
    saving = [(function_of(at, file) or at, at) for at in saves]
    function = function_of(call, file)
    what = function.name.partition("load")[2] if function is not None else ""
    pair = [one for one in saving if what and getattr(one[0], "name", "").endswith(f"save{what}")]
    here = [one for one in saving if one[0] is function]
    return any(_offloads(around, save, file) for around, save in pair or here or saving)


def _offloads(function: ast.AST, save: ast.Call, file: File) -> bool:
    """What is saved is made with ``.cpu()`` or a function called so, or that stands by itself: ``model.cpu()``,
    ``kept[key] = value.cpu()``."""
    calls = (at for at in walk(function) if isinstance(at, ast.Call) and _is_to_cpu(at))
    made = {id(inner) for one in save.args[:1] for part in reached(one, file) for inner in walk(part)}
    return any(id(at) in made or _stands_alone(at, file) for at in calls)


def _is_to_cpu(call: ast.Call) -> bool:
    to = tail_of(call) == "to" and any(isinstance(a, ast.Constant) and a.value == "cpu" for a in call.args)
    return to or _TO_CPU.search(tail_of(call)) is not None


def _stands_alone(call: ast.Call, file: File) -> bool:
    above = next(file.parents(call))
    if isinstance(above, ast.Assign):
        return not isinstance(above.targets[0], ast.Name | ast.Tuple)
    return isinstance(above, ast.Expr | ast.Return)
