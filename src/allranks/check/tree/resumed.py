"""A checkpoint that a program loads to go on training: what was on a GPU where it was saved."""

from __future__ import annotations

import ast
import re

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import function_called, values
from allranks.check.tree.syntax import calls_of, class_of, function_of, name_of, own, tail_of

OPTIMIZER = re.compile(r"(?i)optim|(^|[._])opt(_\w+)?$")
# What has a state, and none on a GPU.
_BESIDE = re.compile(r"(?i)sched|scaler|sampler|loader|(^|[._])rng|generator_state|metric|callback|early_?stop|queue")
# The file is for several processes, whoever runs it; a path that is told the place in a group of parallel models.
_SEVERAL = re.compile(
    r"Distributed(DataParallel|Sampler)|init_(process_group|distributed)|set_device|horovod|deepspeed\.init|Accelerator|"
    r"\.module\b"
)
_OF_A_PART = re.compile(r"\b(dp|tp|pp|ep|mp)\w*\}|_(dp|tp|pp|ep|mp)\b")


def feeds_optimizer(load: ast.Call, file: File) -> bool:
    """An optimizer takes what is loaded: its state was on the GPU of the rank that saved it."""
    nodes, names = own(function_of(load, file) or file.tree), _names(load, file)
    restores = (at for at in nodes if isinstance(at, ast.Call) and tail_of(at) == "load_state_dict" and at.args)
    taken = (at for at in restores if OPTIMIZER.search(ast.unparse(at.func).removesuffix(".load_state_dict")))
    fed = any(at is load or (isinstance(at, ast.expr) and ast.unparse(at) in names) for t in taken for at in walk(t))
    return fed and bool(_SEVERAL.search(file.text)) and not _OF_A_PART.search(ast.unparse(load.args[0]))


def is_saved_here(load: ast.Call, file: File) -> bool:
    """The file saves it, too: a dictionary with states of what is trained, under a key that is taken out here; or such
    a state by itself, where one is loaded whole."""
    if not _SEVERAL.search(file.text):
        return False
    nodes, names = own(function_of(load, file) or file.tree), _names(load, file)
    taken = (at for at in nodes if isinstance(at, ast.Subscript) and ast.unparse(at.value) in names)
    keys = {at.slice.value for at in taken if isinstance(at.slice, ast.Constant)}
    for at in (one for one in nodes if isinstance(one, ast.Assign) and ast.unparse(one.value) in names):
        names |= {ast.unparse(target) for target in at.targets}
    made = (at for at in file.kinds.get(ast.Dict, ()) if isinstance(at, ast.Dict))
    saved = (
        k.value
        for d in made
        for k, v in zip(d.keys, d.values, strict=True)
        if isinstance(k, ast.Constant) and _is_state(v)
    )
    return not keys.isdisjoint(saved) or (_is_restored_whole(load, names, file) and _saves_states(file))


def _is_restored_whole(load: ast.Call, names: set[str], file: File) -> bool:
    """``model.load_state_dict(torch.load(path))``, or of a name of what was loaded, in a method or in what this file
    calls."""
    function = function_of(load, file)
    if function is not None and class_of(load, file) is None:
        calls = calls_of(file).get(function.name, ())
        if not any(function_called(at, file) is function for at in calls):
            return False
    nodes = own(function_of(load, file) or file.tree)
    restores = (at for at in nodes if isinstance(at, ast.Call) and tail_of(at) == "load_state_dict" and at.args)
    fed = ((at.func, at.args[0]) for at in restores)
    return any(
        (given is load or ast.unparse(given) in names) and not _BESIDE.search(ast.unparse(func)) for func, given in fed
    )


def _saves_states(file: File) -> bool:
    """Something is saved that is the state of what is trained, and nothing else."""
    saves = (at for at in calls_of(file).get("save", ()) if at.args and name_of(at, file) == "torch.save")
    return any(_is_state(one) for at in saves for one in (at.args[0], *values(at.args[0], file)))


def _names(load: ast.Call, file: File) -> set[str]:
    """Return what the loaded is called by, as it is written."""
    above = next(file.parents(load), None)
    return {ast.unparse(target) for target in above.targets} if isinstance(above, ast.Assign) else set()


def _is_state(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and tail_of(value) == "state_dict" and not _BESIDE.search(ast.unparse(value))
