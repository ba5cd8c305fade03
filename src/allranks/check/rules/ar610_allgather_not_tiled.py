"""AR610: process_allgather of a global array without tiled=True."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.source import File
from allranks.check.syntax import has_stars, keyword, name_of, tail_of
from allranks.findings import Edit, Finding, Fix, Place

_GATHER = "jax.experimental.multihost_utils.process_allgather"
# What is sharded over processes, by the names that people give it.
_GLOBAL = re.compile(r"(^|_)(params|train_state|state|opt_state|grads|weights|variables)$")
_MAPS = ("tree_map", "map")


class AllgatherNotTiled(LocalRule):
    """
    ## What it does
    Finds `multihost_utils.process_allgather(params)` without `tiled=True`, where the name says that the argument is
    sharded over the processes (params, state, opt_state), also inside `tree_map`.

    ## Why is this bad
    Without `tiled`, the values of the processes are stacked on a new axis, which makes no sense for an array of which
    each process has a part: JAX refuses it.

    ## What happens with N processes
    ValueError at the first checkpoint, after hours. On one process it works, with one axis more than expected or not.

    ## Known problems
    Parameters that each process holds whole, as NumPy arrays, are stacked on purpose.

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
    )
    good = (
        Example(
            {
                "train.py": """\
import jax
from jax.experimental.multihost_utils import process_allgather


def host(params, counts):
    process_allgather(counts)
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
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call):
            return
        if name_of(node, file) == _GATHER:
            alone = len(node.args) == 1 and keyword(node, "tiled") is None and not has_stars(node)
            if alone and _is_global(node.args[0]):
                yield self._gathers(file, node, node.args[0], fix=_fix(node, file))
        elif tail_of(node) in _MAPS and len(node.args) > 1:
            function, tree = node.args[0], node.args[1]
            if name_of(function, file) == _GATHER and _is_global(tree):
                yield self._gathers(file, node, tree)

    def _gathers(self, file: File, node: ast.Call, what: ast.expr, fix: Fix | None = None) -> Finding:
        return self.local(file, node, f"process_allgather of {ast.unparse(what)} without tiled=True", fix=fix)


def _is_global(argument: ast.expr) -> bool:
    """The last part of a plain name or attribute says that it is a tree of sharded arrays."""
    return isinstance(argument, ast.Name | ast.Attribute) and bool(_GLOBAL.search(tail_of(argument)))


def _fix(call: ast.Call, file: File) -> Fix:
    whole = file.place(call)
    at = Place(whole.path, whole.end_line, whole.end_column - 1, whole.end_line, whole.end_column - 1)
    return Fix("tiled=True", (Edit(at, ", tiled=True"),), safe=False)
