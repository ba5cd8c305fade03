"""AR610: process_allgather of a global array without tiled=True."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.origins import passed, values
from allranks.check.tree.syntax import has_stars, keyword, name_of, tail_of
from allranks.check.tree.words import parts
from allranks.findings import Edit, Finding, Fix, Place

_GATHER = "jax.experimental.multihost_utils.process_allgather"
_MAPS = ("tree_map", "map")
_COMPILERS = ("jax.jit", "jax.experimental.pjit.pjit", "jax.pjit", "equinox.filter_jit", "flax.nnx.jit")
# What is sharded over processes, by the names that people give it.
_GLOBAL = frozenset({"params", "state", "grads", "weights", "variables", "parameters"})


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
        """\
import jax
from jax.experimental import multihost_utils


def save(state):
    params = multihost_utils.process_allgather(state.params)  # <-- found
    return params, jax.tree.map(multihost_utils.process_allgather, state.opt_state)  # <-- found
""",
    )
    good = (
        """\
from jax.experimental import multihost_utils


def save(state, loss):
    every = multihost_utils.process_allgather(loss)
    return multihost_utils.process_allgather(state.params, tiled=True), every
""",
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or not node.args:
            return
        if name_of(node, file) == _GATHER:
            alone = len(node.args) == 1 and keyword(node, "tiled") is None and not has_stars(node)
            if alone and (_is_global(node.args[0], file) or _is_computed(node.args[0], file)):
                what = f"process_allgather of {ast.unparse(node.args[0])} without tiled=True"
                yield self.local(file, node, what, fix=_fix(node, file))
        elif tail_of(node) in _MAPS and len(node.args) > 1 and name_of(node.args[0], file) == _GATHER:
            yield from self._mapped(node, file)

    def _mapped(self, node: ast.Call, file: File) -> Iterator[Finding]:
        if _is_global(node.args[1], file):
            yield self.local(file, node, f"process_allgather of {ast.unparse(node.args[1])} without tiled=True")


def _is_global(argument: ast.expr, file: File) -> bool:
    """Whether the last part of a name, or of what is passed for it, says that it is a tree of sharded arrays."""
    named = [one for one in (argument, *passed(argument, file)) if isinstance(one, ast.Name | ast.Attribute)]
    words = [parts(tail_of(one)) for one in named]
    return any(not one.isdisjoint(_GLOBAL) and "local" not in one for one in words)


def _is_computed(argument: ast.expr, file: File) -> bool:
    """Whether something compiled for a mesh made it."""
    if not file.says("Mesh", "mesh", "Sharding", "sharding"):
        return False
    stored = values(argument, file) if isinstance(argument, ast.Name) else [argument]
    for made in stored:
        while isinstance(made, ast.Subscript | ast.Attribute):
            made = made.value
        if isinstance(made, ast.Call):
            compiled = any(
                isinstance(at, ast.Call) and name_of(at, file) in _COMPILERS for at in values(made.func, file)
            )
            if compiled or not parts(tail_of(made)).isdisjoint({"jit", "pjit", "jitted"}) or tail_of(made)[:2] == "p_":
                return True
    return False


def _fix(call: ast.Call, file: File) -> Fix:
    whole = file.place(call)
    at = Place(whole.path, whole.end_line, whole.end_column - 1, whole.end_line, whole.end_column - 1)
    return Fix("tiled=True", (Edit(at, ", tiled=True"),), safe=False)
