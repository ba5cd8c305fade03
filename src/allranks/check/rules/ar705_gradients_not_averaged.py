"""AR705: every device applies the gradients of its own part of the batch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.bypassed import bypass
from allranks.check.tree.mapped import MAPS, mapped
from allranks.check.tree.syntax import is_constant, keyword, name_of, tail_of
from allranks.findings import Finding, Note

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_GRADS = ("grad", "value_and_grad", "filter_grad", "filter_value_and_grad")
_APPLIES = ("apply_gradients", "apply_gradient", "apply_updates")
# Words of what brings gradients together, in a file.
_SHARES = ("pmean", "psum", "all_gather", "allreduce", "all_reduce", "cross_replica", "mpi4jax", "horovod", "kfac")
_COPIES = ("replicate(", "device_put_replicated", "broadcast_to(", "jnp.stack([")


class GradientsNotAveraged(LocalRule):
    """
    ## What it does
    Finds a training step whose gradients nothing averages over the devices:

    - under `jax.pmap`, or under `shard_map` with `check_rep=False` (`check_vma=False`), in a file without
      `jax.lax.pmean` or `psum`
    - with torch, a backward pass from `model.module(...)` or one of its methods, if the file wraps `model` in
      `DistributedDataParallel` and never calls the wrapper

    ## Why is this bad
    Each device computes gradients of its own rows, and only their average is one training. The wrapper prepares the
    averaging when it is called: a call of the model inside skips it.

    ## What happens with N processes
    Nothing fails. Each device trains a separate model on its part of the data, and the models diverge. The first
    device's model is saved. It has seen 1/N of the batches.

    ## Known problems
    Functions of one file are followed. A file that averages anything is taken to average its gradients.

    ## Use instead
    `grads = jax.lax.pmean(grads, axis_name)` before the optimizer uses them; or `jax.jit` with a sharded batch, which
    needs no such call. With torch, call the wrapped model, and let its `forward` choose what is computed.
    """

    code, name, severity, row = "AR705", "gradients-not-averaged", "error", "collectives"
    cluster = "Each device trains a separate model on its part of the data: the models diverge, and nothing fails."
    advice = "Average before the optimizer uses them: grads = jax.lax.pmean(grads, axis_name)."
    words = ("pmap", "shard_map", "DistributedDataParallel")
    nodes = (ast.Call, *_FUNCTIONS)
    calls = (*MAPS, "functools.partial")
    bad = (
        """\
import jax
import optax


def step(params, state, batch):
    grads = jax.grad(loss)(params, batch)
    updates, state = optax.adam(1e-3).update(grads, state)
    return optax.apply_updates(params, updates), state  # <-- found


train = jax.pmap(step, axis_name="data")
""",
    )
    good = (
        """\
import jax
import optax


def step(params, state, batch):
    grads = jax.lax.pmean(jax.grad(loss)(params, batch), "data")
    updates, state = optax.adam(1e-3).update(grads, state)
    return optax.apply_updates(params, updates), state


train = jax.pmap(step, axis_name="data")
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test and (file.says("grad") or file.says("backward"))

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, _FUNCTIONS) and (call := bypass(node, file)) is not None:
            message = f"the loss is that of {ast.unparse(call.func)}, not of the wrapper that averages gradients"
            advice = "Call the wrapped model itself, and do in its forward what else it must do."
            yield self.local(file, call, message, advice=advice)
        step = _step(node, file)
        if step is None or file.says(*_SHARES):
            return
        calls = [at for at in walk(step) if isinstance(at, ast.Call)]
        applied = next((at for at in calls if tail_of(at) in _APPLIES), None)
        if applied is not None and any(tail_of(at) in _GRADS or tail_of(at.func) in _GRADS for at in calls):
            note = Note("it runs on each device, on its own rows", file.place(node))
            message = "each device applies the gradients of its own rows: nothing averages them"
            yield self.finding(file.place(applied), file.symbol(applied), message, notes=[note])


def _step(node: ast.AST, file: File) -> ast.AST | None:
    """Return the function that ``node`` runs on each device, with a state that all of them have."""
    copies = file.says(*_COPIES)
    if isinstance(node, _FUNCTIONS):
        return node if copies and any(name_of(d, file) == "jax.pmap" for d in node.decorator_list) else None
    if not isinstance(node, ast.Call):
        return None
    name = name_of(node, file)
    if name == "functools.partial":
        name = name_of(node.args[0], file) if node.args else ""
    if name == "jax.pmap":
        return mapped(node, file) if copies or keyword(node, "axis_name") is not None or len(node.args) > 1 else None
    unchecked = any(is_constant(keyword(node, word), False) for word in ("check_rep", "check_vma"))
    return mapped(node, file) if name in MAPS and unchecked else None
