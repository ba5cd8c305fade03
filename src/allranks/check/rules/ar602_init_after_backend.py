"""AR602: jax.distributed.initialize after the backend has started."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.sources.source import File
from allranks.check.tables.backend import JAX_ARRAYS, JAX_JOINS, JAX_STARTERS
from allranks.check.tree.earlier import DEEPEST, callers, earlier, first_of, is_plain
from allranks.check.tree.syntax import Function, function_of, inside, name_of
from allranks.findings import Finding, Note

_STARTERS = JAX_STARTERS | JAX_ARRAYS


class InitAfterBackend(LocalRule, ProgramRule):
    """
    ## What it does
    Finds `jax.distributed.initialize()` below a call that starts JAX's backend (`jax.devices()`, `jnp.zeros`,
    `jax.random.PRNGKey`, `jax.process_index()`): in the same function or module, in a called function, or above every
    call that leads to it. In a program, the imports of its modules count (`ROPE = jnp.arange(64)`), and so does what it
    certainly calls before, in any file.

    ## Why is this bad
    The backend is started once. A process that started it before joining knows only its own devices.

    ## What happens with N processes
    JAX raises RuntimeError on every rank. If that is caught, N programs train separately, each as rank 0.

    ## Known problems
    Methods of objects are followed only if they are called by `self`.

    No fault of this kind has been seen in real code yet; that JAX raises was measured.

    ## Use instead
    Call `jax.distributed.initialize()` (or `allranks.init()`) at the beginning of `main`, before anything uses a
    device.
    """

    code, name, severity, row = "AR602", "init-after-backend", "error", "initialisation"
    cluster = "JAX raises RuntimeError; if the program catches it, every process trains separately as rank 0."
    advice = "Move jax.distributed.initialize() above everything that uses a device of JAX or makes an array."
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
        # In other functions.
        Example(
            {
                "train.py": """\
import jax


def describe():
    print("devices", jax.devices())


def setup_mesh():
    jax.distributed.initialize()
    return jax.make_mesh((8,), ("data",))


def main():
    describe()
    return setup_mesh()
"""
            },
            at=(9,),
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
        # Not on every way, or only once it is consumed.
        Example(
            {
                "train.py": """\
import jax


def describe(quiet):
    if quiet:
        return
    print("devices", jax.devices())


def batches():
    yield jax.device_count()


def setup_mesh():
    describe(True)
    data = batches()
    jax.distributed.initialize()
    return data


def show():
    print(jax.devices())
    setup_mesh()


def main():
    setup_mesh()
"""
            }
        ),
        Example({"train.py": "import jax\n\nif jax.distributed.is_initialized():\n    jax.distributed.shutdown()\n"}),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or name_of(node, file) != JAX_JOINS:
            return
        first = _before(node, file)
        if first is not None:
            yield self.finding(
                file.place(node),
                file.symbol(node),
                _late(name_of(first, file)),
                notes=[Note("the backend starts here", file.place(first))],
            )

    def check(self, program: Program) -> Iterator[Finding]:
        """Look at what programs certainly do before they join, in all their files."""
        for moment in program.facts.moments:
            started = [name for name in moment.before if name in _STARTERS or name == JAX_JOINS]
            if moment.name == JAX_JOINS and started and started[0] != JAX_JOINS:
                place, symbol = program.facts.stands(moment.at)
                note = Note("the backend starts here", program.facts.stands(moment.before[started[0]])[0])
                yield self.finding(place, symbol, _late(started[0]), notes=[note])


def _late(starter: str) -> str:
    return f"{JAX_JOINS}() comes after {starter}(), which has started the backend"


def _before(call: ast.Call, file: File) -> ast.Call | None:
    """Return a call that certainly runs before ``call`` and starts the backend."""
    return earlier(call, file, partial(_starts, file)) or first_of(_top_level(call, file), file, partial(_starts, file))


def _starts(file: File, call: ast.Call) -> bool:
    return name_of(call, file) in _STARTERS


def _top_level(call: ast.Call, file: File) -> Iterator[ast.stmt]:
    """Yield the statements of the module, for a call in a function: what the module does comes before."""
    function = function_of(call, file)
    if function is not None and not _runs_at_import(function, file):
        yield from filter(is_plain, file.tree.body)


def _runs_at_import(function: Function, file: File, depth: int = 0) -> bool:
    """The function is called at top level, so that statements below that call run after it."""
    for call in callers(function, file):
        above = function_of(call, file)
        if depth < DEEPEST and (
            _runs_at_import(above, file, depth + 1) if above is not None else _is_at_top(call, file)
        ):
            return True
    return False


def _is_at_top(call: ast.Call, file: File) -> bool:
    statement = next((child for parent, child in inside(call, file) if parent is file.tree), None)
    return isinstance(statement, ast.stmt) and is_plain(statement)
