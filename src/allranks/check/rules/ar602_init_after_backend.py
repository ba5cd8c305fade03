"""AR602: jax.distributed.initialize after the backend has started."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.knowledge.tables import read
from allranks.check.rule import LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.earlier import earlier
from allranks.check.tree.syntax import function_of, name_of, nodes_in
from allranks.findings import Finding, Note

_PLAIN = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Assert)
_TABLE = read("backend.toml")
_JOINS = "jax.distributed.initialize"


class InitAfterBackend(LocalRule):
    """
    ## What it does
    Finds `jax.distributed.initialize()` below a call that starts JAX's backend (`jax.devices()`, `jnp.zeros`,
    `jax.random.PRNGKey`, `jax.process_index()`): in the same function, above every call that leads to it, or at the top
    of the module.

    ## Why is this bad
    The backend is started once. A process that started it before joining knows only its own devices.

    ## What happens with N processes
    JAX raises RuntimeError on every rank. If that is caught, N programs train separately, each as rank 0.

    ## Known problems
    What the imported modules of the project do is not followed.

    ## Use instead
    Call `jax.distributed.initialize()` (or `allranks.init()`) at the beginning of `main`, before anything uses a
    device.
    """

    code, name, severity, row = "AR602", "init-after-backend", "error", "initialisation"
    cluster = "JAX raises RuntimeError; if the program catches it, every process trains separately as rank 0."
    advice = "Move jax.distributed.initialize() above everything that uses a device of JAX or makes an array."
    words = ("distributed",)
    nodes = (ast.Call,)
    calls = (_JOINS,)
    bad = (
        """\
import jax
import jax.numpy as jnp

SCALE = jnp.array(0.5)


def main():
    jax.distributed.initialize()  # <-- found


main()
""",
    )
    good = (
        """\
import jax


def main():
    jax.distributed.initialize()
    print(jax.devices())


main()
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or name_of(node, file) != _JOINS:
            return
        first = earlier(node, file, lambda call: _starts(call, file))
        if first is None and function_of(node, file) is not None:
            top = [at for at in file.tree.body if isinstance(at, _PLAIN) and at.lineno < node.lineno]
            first = next((at for at in nodes_in(top) if isinstance(at, ast.Call) and _starts(at, file)), None)
        if first is not None:
            what = f"{_JOINS}() comes after {name_of(first, file)}(), which has started the backend"
            notes = [Note("the backend starts here", file.place(first))]
            yield self.finding(file.place(node), file.symbol(node), what, notes=notes)


def _starts(call: ast.Call, file: File) -> bool:
    return name_of(call, file) in {*_TABLE["jax_starters"], *_TABLE["jax_arrays"]}
