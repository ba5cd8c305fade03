"""JAX: functions that are compiled for the devices of all processes, and arrays that lie on them.

An array over all processes has the taint SPREAD, and so has what is computed from it. A computation on one starts where
all processes have called it: for them it is a collective, and its result is the same on all.
"""

from __future__ import annotations

import ast

from allranks.check.knowledge.tables import Collective
from allranks.check.simulate.given import Given, Keywords
from allranks.check.simulate.parts import Simulation
from allranks.check.simulate.state import Frame
from allranks.check.simulate.values import SPREAD, Const, Function, Library, Made, Unknown, Value, taint, unknown

COMPILERS = frozenset(["jax.jit", "jax.pmap", "flax.nnx.jit", "flax.nnx.pmap", "equinox.filter_jit"])
_FOR_ALL = ("in_shardings", "out_shardings", "axis_name")  # options with which a function is compiled for all processes
_EAGER = ("jax.numpy.", "jax.lax.", "jax.scipy.")  # they compute as soon as they are called
# Those that bring together what several devices hold.
_TOGETHER = frozenset(
    [
        *("mean", "sum", "max", "min", "argmax", "argmin", "std", "var", "all", "any", "norm"),
        *("dot", "matmul", "einsum", "sort"),
    ]
)
_SHARDING, _WHOLE = "jax.sharding.NamedSharding", Made("jax.sharding.PartitionSpec")
_TO_HOST = ("jax.device_get", "numpy.")


def compile_function(_: Simulation, __: Frame, given: Given) -> Value:
    """Return what ``jax.jit(function)`` gives."""
    return _compiled(given.first, given.keywords)


def compiled_by_decorator(simulator: Simulation, frame: Frame, function: Function, decorator: ast.expr) -> Value | None:
    """Return a function as ``@jax.jit`` or ``@partial(jax.jit, ...)`` compiles it; None for other decorators."""
    compiler = _named(simulator, frame, decorator)
    keywords: Keywords = ()
    if isinstance(decorator, ast.Call):
        given = [(one.arg or "", simulator.expressions.value(frame, one.value)) for one in decorator.keywords]
        compiler, keywords = _named(simulator, frame, decorator.func), tuple(given)
        if compiler == "functools.partial" and decorator.args:
            compiler = _named(simulator, frame, decorator.args[0])
    return _compiled(function, keywords) if compiler in COMPILERS else None


def _named(simulator: Simulation, frame: Frame, node: ast.expr) -> str:
    value = simulator.expressions.value(frame, node) if isinstance(node, ast.Name | ast.Attribute) else None
    return simulator.knowledge.documented(value.name) if isinstance(value, Library) else ""


def _compiled(about: Value | None, keywords: Keywords) -> Value:
    for_all = any(name in _FOR_ALL and value != Const(None) for name, value in keywords)
    if isinstance(about, Function):
        made = about.with_receiver(about.receiver)
        made.scope, made.compiled = about.scope, "all" if for_all else "spread"
        return made
    return Made("<compiled for all>" if for_all else "<compiled>", about=about)


def put_on_devices(_: Simulation, __: Frame, given: Given) -> Value:
    """Return what ``jax.device_put`` gives: an array over all processes where it is told how it lies on a mesh."""
    where = given.argument(1, "device")
    is_spread = isinstance(where, Made) and where.cls == _SHARDING and dict(where.arguments).get("spec") != _WHOLE
    return unknown(*given.every, also=SPREAD if is_spread else 0)


def shard_over_mesh(_: Simulation, __: Frame, given: Given) -> Value:
    """Return a ``NamedSharding``, with the mesh and how arrays lie on it."""
    spec = given.argument(1, "spec")
    return Made(_SHARDING, about=given.first, arguments=(("spec", spec),) if spec is not None else ())


def run_compiled(simulator: Simulation, frame: Frame, callee: Function | Made, given: Given) -> Value | None:
    """Return what a compiled function gives where it computes on all processes; None where it computes on one."""
    for_all = callee.compiled == "all" if isinstance(callee, Function) else callee.cls == "<compiled for all>"
    name = callee.name if isinstance(callee, Function) else "compiled function"
    return _compute(simulator, frame, name, given) if for_all or _is_spread(given) else None


def compute_eagerly(simulator: Simulation, frame: Frame, name: str, given: Given) -> Value | None:
    """Return what a function or method of arrays gives for arrays over all processes; None for other arrays."""
    if not _is_spread(given):
        return None
    if name.startswith(_TO_HOST) or name == "addressable_data":
        return Unknown(unknown(given.receiver, *given.every).taint & ~SPREAD)
    is_method = given.receiver is not None and name in _TOGETHER
    together = is_method or (name.startswith(_EAGER) and name.rpartition(".")[2] in _TOGETHER)
    return _compute(simulator, frame, name, given) if together else None


def _is_spread(given: Given) -> bool:
    return any(value is not None and taint(value) & SPREAD for value in (given.receiver, *given.every))


def _compute(simulator: Simulation, frame: Frame, name: str, given: Given) -> Value:
    simulator.recording.note(frame, name, "collective", given, Collective(name, "computation", hidden=True))
    return Unknown(SPREAD)
