"""AR610: process_allgather of a global array without tiled=True."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.origins import passed, reached, values
from allranks.check.tree.syntax import has_stars, keyword, name_of, tail_of
from allranks.findings import Edit, Finding, Fix, Place

_GATHER = "jax.experimental.multihost_utils.process_allgather"
# What is sharded over processes, by the names that people give it.
_GLOBAL = re.compile(r"^(?!local_)(?:.*_)?(params|train_state|state|opt_state|grads|weights|variables)$")
# How people call what jax.jit returned.
_COMPILED = re.compile(r"^(p|jit|pjit|jitted)_|_(jit|pjit|jitted)$")
_COMPILERS = ("jax.jit", "jax.experimental.pjit.pjit", "jax.pjit", "equinox.filter_jit", "nnx.jit", "flax.nnx.jit")
_MESHES = re.compile(r"[Mm]esh|[Ss]harding")
_MAPS = ("tree_map", "map")
_DEEPEST = 3


class AllgatherNotTiled(LocalRule):
    """
    ## What it does
    Finds `multihost_utils.process_allgather(params)` without `tiled=True`, also inside `tree_map`. The name must say
    that the argument is sharded over the processes (params, state, opt_state), or a compiled function must have made it
    in a file that uses meshes or shardings.

    ## Why is this bad
    Without `tiled`, the values of the processes are stacked on a new axis. JAX refuses that for an array of which each
    process has a part.

    ## What happens with N processes
    ValueError at the first checkpoint, after hours. On one process it works, sometimes with an additional axis.

    ## Known problems
    Parameters that are replicated, as NumPy arrays, are stacked on purpose.

    ## Use instead
    `process_allgather(params, tiled=True)`.

    ## Fix safety
    Unsafe: the result has another shape if the arrays were local.
    """

    code, name, severity, row = "AR610", "allgather-not-tiled", "error", "checkpoint save"
    cluster = "JAX raises ValueError for an array that spans processes: gathering it must be tiled."
    advice = "Pass tiled=True."
    words = ("process_allgather",)
    nodes = (ast.Call,)
    calls = (_GATHER, *_MAPS)
    bad = (
        Example(
            {
                "train.py": """\
from jax.experimental import multihost_utils


def host(params):
    return multihost_utils.process_allgather(params)
"""
            },
            at=(5,),
        ),
        Example(
            {
                "train.py": """\
import jax
from jax.experimental.multihost_utils import process_allgather


def host(self):
    return jax.tree_util.tree_map(process_allgather, self.train_state)
"""
            },
            at=(6,),
        ),
        Example(
            {
                "train.py": """\
import jax
from jax.experimental import multihost_utils


def evaluate(mesh, step, shardings, state, batch):
    p_eval_step = jax.jit(step, in_shardings=shardings)
    with mesh:
        metrics, _ = p_eval_step(state, batch)
    losses = metrics["loss"]
    return multihost_utils.process_allgather(losses)
"""
            },
            at=(10,),
        ),
        # A leaf of a tree that a caller gives.
        Example(
            {
                "export.py": """\
import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather


def to_host(tree):
    return jax.tree.map(lambda x: np.asarray(process_allgather(x)), tree)


def export(params):
    return to_host(params)
"""
            },
            at=(7,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import jax
from jax.experimental.multihost_utils import process_allgather


def host(params, counts, local_state):
    process_allgather(counts)
    process_allgather(local_state)
    jax.tree.map(lambda x: process_allgather(x), counts)
    return jax.tree.map(lambda x: process_allgather(x, tiled=True), params)
"""
            }
        ),
        Example(
            {
                "train.py": """\
from jax.experimental.multihost_utils import process_allgather


def same(state):
    return process_allgather(state.step), process_allgather(len(state.params))
"""
            }
        ),
        # A number of each process, counted up by what was computed.
        Example(
            {
                "train.py": """\
import jax
from jax.experimental import multihost_utils


def evaluate(mesh, judge, shardings, batches):
    p_judge = jax.jit(judge, in_shardings=shardings)
    valid = 0
    for batch in batches:
        verdicts = p_judge(batch)
        valid = valid + sum(one.addressable_data(0).item() for one in verdicts)
    return multihost_utils.process_allgather(valid)
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call):
            return
        if name_of(node, file) == _GATHER:
            alone = len(node.args) == 1 and keyword(node, "tiled") is None and not has_stars(node)
            if alone and (any(map(_is_global, _meant(node.args[0], file))) or _is_computed(node.args[0], file)):
                yield self._gathers(file, node, node.args[0], fix=_fix(node, file))
        elif tail_of(node) in _MAPS and len(node.args) > 1:
            function, tree = node.args[0], node.args[1]
            if name_of(function, file) == _GATHER and any(map(_is_global, _meant(tree, file))):
                yield self._gathers(file, node, tree)

    def _gathers(self, file: File, node: ast.Call, what: ast.expr, fix: Fix | None = None) -> Finding:
        return self.local(file, node, f"process_allgather of {ast.unparse(what)} without tiled=True", fix=fix)


def _meant(argument: ast.expr, file: File, depth: int = 0) -> Iterator[ast.expr]:
    """Yield what is gathered: what stands there, the tree of which it is a leaf in `tree_map`, and what the calls in
    this file give the function."""
    yield argument
    if not isinstance(argument, ast.Name) or depth > _DEEPEST:
        return
    for inner in (at for at in file.parents(argument) if isinstance(at, ast.Lambda)):
        if argument.id in [at.arg for at in inner.args.args]:
            maps = next(file.parents(inner), None)
            if isinstance(maps, ast.Call) and tail_of(maps) in _MAPS and inner in maps.args and len(maps.args) > 1:
                yield from _meant(maps.args[1], file, depth + 1)
            return
    for given in passed(argument, file):
        yield from _meant(given, file, depth + 1)


def _is_global(argument: ast.expr) -> bool:
    """The last part of a plain name or attribute says that it is a tree of sharded arrays."""
    return isinstance(argument, ast.Name | ast.Attribute) and bool(_GLOBAL.search(tail_of(argument)))


def _is_computed(argument: ast.expr, file: File) -> bool:
    """Something compiled for a mesh made it: a part of what it returns, or what was stored of that under a name. What
    begins as a number counts up on each host."""
    numbers = (v.value for v in values(argument, file) if isinstance(v, ast.Constant))
    if _MESHES.search(file.text) is None or any(isinstance(number, int | float) for number in numbers):
        return False
    for made in reached(argument, file):
        while isinstance(made, ast.Subscript | ast.Attribute) or (
            isinstance(made, ast.Call) and tail_of(made) == "block_until_ready"
        ):
            made = made.func if isinstance(made, ast.Call) else made.value
        if isinstance(made, ast.Call) and _is_compiled(made.func, file):
            return True
    return False


def _is_compiled(function: ast.expr, file: File) -> bool:
    if _COMPILED.search(tail_of(function)) is not None:
        return True
    return any(isinstance(made, ast.Call) and name_of(made, file) in _COMPILERS for made in values(function, file))


def _fix(call: ast.Call, file: File) -> Fix:
    whole = file.place(call)
    at = Place(whole.path, whole.end_line, whole.end_column - 1, whole.end_line, whole.end_column - 1)
    return Fix("tiled=True", (Edit(at, ", tiled=True"),), safe=False)
