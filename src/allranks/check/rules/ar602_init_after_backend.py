"""AR602: jax.distributed.initialize after the backend has started."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.nodes import walk
from allranks.check.rule import Example, LocalRule
from allranks.check.source import File
from allranks.check.syntax import inside, name_of, own
from allranks.check.tables.backend import JAX_ARRAYS, JAX_STARTERS
from allranks.findings import Finding, Note

_STARTERS = JAX_STARTERS | JAX_ARRAYS


class InitAfterBackend(LocalRule):
    """
    ## What it does
    Finds `jax.distributed.initialize()` below a call that starts JAX's backend (`jax.devices()`, `jnp.zeros`,
    `jax.random.PRNGKey`, `jax.process_index()`) in the same function or module.

    ## Why is this bad
    The backend is started once. A process that started it alone knows only its own devices.

    ## What happens with N processes
    JAX raises RuntimeError on every rank. If that is caught, N programs train on their own, each as rank 0.

    ## Known problems
    Only one file is looked at: a module that makes an array when it is imported is not seen from here.

    No fault of this kind has been seen in real code yet; that JAX raises was measured.

    ## Use instead
    Call `jax.distributed.initialize()` (or `allranks.init()`) first thing in `main`, before anything asks for devices.
    """

    code, name, severity, row = "AR602", "init-after-backend", "error", "initialisation"
    cluster = "JAX raises RuntimeError; where that is swallowed, every process trains alone as rank 0."
    advice = "Move jax.distributed.initialize() above everything that asks JAX for a device or makes an array."
    words = ("distributed",)
    nodes = (ast.Call,)
    calls = ("jax.distributed.initialize",)
    bad = (
        Example(
            {
                "train.py": """\
import jax


def main():
    print(jax.devices())
    jax.distributed.initialize()
"""
            },
            at=(6,),
        ),
        Example(
            {
                "train.py": """\
import jax
import jax.numpy as jnp

ZERO = jnp.zeros(())


def main():
    jax.distributed.initialize()
"""
            },
            at=(8,),
        ),
        Example(
            {
                "train.py": """\
import jax


def main():
    if jax.process_count() > 1:
        jax.distributed.initialize()
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


@jax.jit
def step(x):
    return x


def main():
    jax.distributed.initialize()
    print(jax.devices())
"""
            }
        ),
        # Another path.
        Example(
            {
                "train.py": """\
import jax


def main(several):
    if not several:
        return jax.devices()
    jax.distributed.initialize()
    return jax.devices()
"""
            }
        ),
        Example({"train.py": "import jax\n\nif jax.distributed.is_initialized():\n    jax.distributed.shutdown()\n"}),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or name_of(node, file) != "jax.distributed.initialize":
            return
        first = next(iter(_before(node, file)), None)
        if first is not None:
            yield self.finding(
                file.place(node),
                file.symbol(node),
                f"jax.distributed.initialize() comes after {name_of(first, file)}(), which has started the backend",
                notes=[Note("the backend starts here", file.place(first))],
            )


def _before(call: ast.Call, file: File) -> Iterator[ast.Call]:
    """Yield calls that certainly run before ``call`` and start the backend: above it in its own blocks."""
    for parent, child in [*inside(call, file), *_top_level(call, file)]:
        for part in _earlier(parent, child):
            for at in [part, *own(part)]:
                if isinstance(at, ast.Call) and name_of(at, file) in _STARTERS:
                    yield at


def _earlier(parent: ast.AST, child: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs before ``child`` in its parent: the test of its `if`, the statements above that do not branch."""
    if isinstance(parent, ast.If | ast.While) and child is not parent.test:
        yield parent.test
    for block in (getattr(parent, name, None) for name in ("body", "orelse", "finalbody")):
        if isinstance(block, list) and child in block:
            yield from (s for s in block[: block.index(child)] if _is_plain(s))


def _is_plain(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Assert)


def _top_level(call: ast.Call, file: File) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield the module with its last statement, for a call in a function: what the module does comes before."""
    above = [call, *file.parents(call)]
    if any(isinstance(p, ast.FunctionDef) for p in above) and not _runs_at_import(call, file):
        end = ast.Pass()
        yield ast.Module([*file.tree.body, end], []), end


def _runs_at_import(call: ast.Call, file: File) -> bool:
    """The function is called at top level, so that statements below that call run after it."""
    names = {p.name for p in file.parents(call) if isinstance(p, ast.FunctionDef)}
    return any(
        isinstance(at, ast.Call) and isinstance(at.func, ast.Name) and at.func.id in names
        for statement in file.tree.body
        if _is_plain(statement)
        for at in walk(statement)
    )
