"""AR608: the leading axis for pmap is the number of all devices, not of this process' own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.source import File
from allranks.check.syntax import distributed, function_of, name_of, own
from allranks.findings import Edit, Finding, Fix

_GLOBAL = "jax.device_count"
_SHAPERS = ("reshape", "broadcast_to", "split", "stack")


class PmapLeadingAxis(LocalRule):
    """
    ## What it does
    Finds batches that are reshaped for `jax.pmap` with `jax.device_count()`, the number of devices of all processes.

    ## Why is this bad
    The leading axis of what a process gives to `pmap` is the number of *its own* devices. On one host the two numbers
    are equal, so that nothing is seen there.

    ## What happens with N processes
    `pmap` raises ValueError on every rank (compiling for more devices than are attached), or the batch cannot be cut.

    ## Known problems
    A batch that is reshaped for something else in a file that also has a pmap.

    No fault of this kind has been seen in real code yet; that `pmap` raises was measured.

    ## Use instead
    `jax.local_device_count()`.

    ## Fix safety
    Unsafe: sizes that were computed from the old number may have to change with it.
    """

    code, name, severity, row = "AR608", "pmap-leading-axis", "error", "sharding"
    cluster = "pmap raises ValueError: a process gives data to its own devices alone."
    advice = "Use jax.local_device_count() for the leading axis."
    words = ("pmap",)
    nodes = (ast.Call,)
    calls = _SHAPERS
    bad = (
        Example(
            {
                "train.py": """\
import jax

MAIN = jax.process_index() == 0

step = jax.pmap(lambda x: x)


def run(x):
    return step(x.reshape((jax.device_count(), -1) + x.shape[1:]))
"""
            },
            at=(9,),
        ),
        Example(
            {
                "train.py": """\
import jax

MAIN = jax.process_index() == 0


def shard(xs):
    devices = jax.device_count()
    return jax.tree_util.tree_map(lambda x: x.reshape(devices, -1, *x.shape[1:]), xs)


step = jax.pmap(lambda x: x)
"""
            },
            at=(8,),
        ),
        Example(
            {
                "train.py": """\
import jax

MAIN = jax.process_index() == 0


@jax.pmap
def step(key):
    return key


def run(key):
    return step(jax.random.split(key, jax.device_count()))
"""
            },
            at=(12,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import jax

step = jax.pmap(lambda x: x)


def run(x):
    batch = 128 // jax.device_count()
    return step(x.reshape((jax.local_device_count(), batch) + x.shape[1:]))
"""
            }
        ),
        Example({"train.py": "import jax\n\nx = jax.numpy.ones(8).reshape(jax.device_count(), -1)\n"}),
        # The mesh is of all devices.
        Example(
            {
                "train.py": """\
import jax
import numpy as np

mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(jax.device_count() // 2, 2), ("data", "model"))
old = jax.pmap(lambda x: x)
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return
        if node.func.attr not in _SHAPERS or "pmap" not in file.text or _is_of_devices(node):
            return
        if (axis := _axis(node, file)) is None or not distributed(file):
            return
        if isinstance(axis, ast.Call):
            fix = Fix("local_device_count()", (Edit(file.place(axis), _local(axis)),), safe=False)
            yield self.local(file, node, "pmap's leading axis is given the devices of all processes", fix=fix)
        elif _is_count(axis, file):
            yield self.local(file, node, f"pmap's leading axis {axis.id} counts the devices of all processes")


def _axis(call: ast.Call, file: File) -> ast.Call | ast.Name | None:
    """Return the leading axis of the shape that ``call`` makes, if it may be a number of devices."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    arguments, dotted = list(call.args), name_of(call, file)
    if name == "split":
        arguments = arguments[1:2] if dotted == "jax.random.split" else []
    elif name == "broadcast_to" or dotted.startswith(("jax.numpy.", "numpy.")):
        arguments = arguments[1:]
    first = arguments[0] if arguments else None
    while isinstance(first, ast.BinOp) and isinstance(first.op, ast.Add):
        first = first.left
    if isinstance(first, ast.Tuple | ast.List):
        first = first.elts[0] if first.elts else None
    if isinstance(first, ast.Call):
        return first if name_of(first, file) == _GLOBAL else None
    return first if isinstance(first, ast.Name) else None


def _is_count(axis: ast.Name, file: File) -> bool:
    """``axis`` is a variable of this function or module that is only ever the number of all devices."""
    scope = function_of(axis, file)
    for at in (scope, file.tree):
        values = [a.value for a in own(at) if isinstance(a, ast.Assign) and _names(a, axis.id)] if at else []
        if values:
            return all(isinstance(v, ast.Call) and name_of(v, file) == _GLOBAL for v in values)
    return False


def _names(assign: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in assign.targets)


def _is_of_devices(call: ast.Call) -> bool:
    """What is reshaped are devices, for a mesh."""
    return "devices" in ast.unparse(call.func)


def _local(axis: ast.Call) -> str:
    return ast.unparse(axis).replace("device_count", "local_device_count")
