"""AR608: what a process gives to its own devices is counted or placed by the devices of all processes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import passed, reached
from allranks.check.tree.syntax import arguments, given, is_constant, name_of, rank_guard, tail_of
from allranks.findings import Edit, Finding, Fix

# Calls whose first numbers are the leading axis of what pmap gets.
_SHAPES = ("reshape", "split", "broadcast_to", "zeros", "ones", "shard", "stack", "repeat", "tile", "array_split")
_READERS = ("DataLoader", "batch", "padded_batch", "Batch")
# Call -> the argument that is one device, or a list of devices of this process.
_PLACES = {
    "jax.device_put": (1, "device"),
    "jax.default_device": (0, "new_val"),
    "jax.sharding.SingleDeviceSharding": (0, "device"),
    "jax.device_put_replicated": (1, "devices"),
    "jax.device_put_sharded": (1, "devices"),
    "flax.jax_utils.replicate": (1, "devices"),
    "flax.jax_utils.prefetch_to_device": (2, "devices"),
}
# What makes a number that of one process again.
_LAID_OUT = ("Sharding", "Mesh", "make_mesh")  # how an array lies on the devices of all: this process puts its part
_LOCAL = ("local", "process_count", "process_index", "num_hosts", "host_count", "//", " / ")
_PUT = "may be of another process: this one can put nothing on it"
# Programs in which each process makes its rows for itself.
_OF_PROCESS = ("pmap", "jax_utils", "common_utils", "process_local_data")
_MESHES = ("Mesh(", "shard_map", "NamedSharding", "make_mesh", "pjit(")


class GlobalDevicesAsLocal(LocalRule):
    """
    ## What it does
    Finds a process of a JAX program that uses the devices of all processes as its own:

    - rows or keys for `jax.pmap` get `jax.device_count()` as the leading axis
    - the reader of one process gets a batch size that is multiplied with `jax.device_count()`
    - something is put on `jax.devices()[0]`; `device_put_replicated` and similar calls get `jax.devices()`

    ## Why is this bad
    What a process gives to `pmap` has a row for each of *its own* devices, and a process can use no device of another
    one. On one host the two are the same, so the fault is not seen there.

    ## What happens with N processes
    `pmap` raises ValueError on every rank (compiling for more devices than are attached), or the batch cannot be
    divided. `jax.devices()[0]` belongs to process 0: on the others it raises.

    ## Known problems
    Numbers are followed within one file. Programs of which no file asks for the number of the process are not checked.

    ## Use instead
    `jax.local_device_count()`, `jax.local_devices()`; `batch // jax.process_count()` for what one process reads.

    ## Fix safety
    Unsafe: sizes that were computed from the old number may have to change with it.
    """

    code, name, severity, row = "AR608", "global-devices-as-local", "error", "sharding"
    cluster = "It raises, or the sizes are wrong by the number of processes: a process has its own devices only."
    advice = "Use jax.local_device_count() and jax.local_devices() for what this process gives to its own devices."
    words = ("device_count", "devices(")
    nodes = (ast.Call,)
    bad = (
        """\
import jax

jax.distributed.initialize()
print(jax.process_index())
step = jax.pmap(lambda key: jax.random.normal(key))
step(jax.random.split(jax.random.PRNGKey(0), jax.device_count()))  # <-- found
x = jax.device_put(1.0, jax.devices()[0])  # <-- found
""",
    )
    good = (
        """\
import jax

jax.distributed.initialize()
print(jax.process_index())
step = jax.pmap(lambda key: jax.random.normal(key))
step(jax.random.split(jax.random.PRNGKey(0), jax.local_device_count()))
x = jax.device_put(1.0, jax.local_devices()[0])
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test and file.says("jax")

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or rank_guard(node, file) is not None:
            return
        name, tail = name_of(node, file), tail_of(node)
        meshed = file.says(*_MESHES)
        if name in _PLACES:
            device = given(node, *_PLACES[name])
            if (
                device is not None
                and _asked(device, file, "jax.devices") is not None
                and "cpu" not in ast.unparse(device)
            ):
                what = f"{ast.unparse(device)} {_PUT}"
                yield self.local(file, node, what)
        elif tail in _SHAPES and not meshed:
            axes = [one for given_one in arguments(node) for one in _axes(given_one)]
            counted = next((at for one in axes if (at := _asked(one, file, "jax.device_count")) is not None), None)
            if counted is not None and not any(is_constant(one, -1) for one in axes[:1]):
                message = "the leading axis for pmap counts the devices of all processes"
                yield self.local(file, node, message, fix=_fix(counted, node, file))
        elif tail in _READERS and not meshed:
            size = given(node, 1 if tail == "DataLoader" else 0, "batch_size")
            if size is not None and _asked(size, file, "jax.device_count") is not None:
                yield self.local(file, node, "the reader of one process gets the batch size of all processes")

    def confirm(self, finding: Finding, program: Program) -> bool:
        """Whether its program asks which of several processes it is."""
        path, facts = finding.place.path, program.facts
        several = facts.says(path, "process_index", "process_count", "distributed.initialize")
        return several and (finding.message.endswith(_PUT) or facts.says(path, *_OF_PROCESS))


def _axes(shape: ast.expr) -> list[ast.expr]:
    """Return the first number of a shape, or a number by itself."""
    parts = shape.elts[:1] if isinstance(shape, ast.Tuple | ast.List) else [shape]
    return [one for one in parts if isinstance(one, ast.Name | ast.Attribute | ast.Call)]


def _asked(number: ast.expr, file: File, what: str) -> ast.Call | None:
    """Return the call that asks for the devices of all processes, if a number or device comes from it alone."""
    found: ast.Call | None = None
    ways = [*reached(number, file), *(one for value in passed(number, file) for one in reached(value, file))]
    beside = (*_LOCAL, *_LAID_OUT) if what == "jax.devices" else _LOCAL
    if any(word in ast.unparse(way) for way in ways for word in beside):
        return None
    for at in (inner for way in ways for inner in walk(way) if isinstance(inner, ast.Call)):
        if name_of(at, file) == what or (what == "jax.device_count" and ast.unparse(at) == "len(jax.devices())"):
            found = at
    return found


def _fix(counted: ast.Call, node: ast.Call, file: File) -> Fix | None:
    text = ast.unparse(counted)
    if text != "jax.device_count()" or not any(at is counted for at in walk(node)):
        return None
    return Fix("local_device_count()", (Edit(file.place(counted), "jax.local_device_count()"),), safe=False)
