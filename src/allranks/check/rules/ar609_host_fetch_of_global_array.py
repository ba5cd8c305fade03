"""AR609: a host asks for the whole of an array of which it holds a part."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.sources.source import File
from allranks.check.tables.arrays import FETCHES, FETCHING_METHODS, TREE_MAPS
from allranks.check.tree.origins import latest, reached, values
from allranks.check.tree.syntax import distributed, given, keyword, name_of, tail_of
from allranks.findings import Finding

_GLOBAL = (
    "jax.make_array_from_process_local_data",
    "jax.experimental.multihost_utils.host_local_array_to_global_array",
)
_WRITES = ("numpy.save", "pickle.dumps")
_SPECS = ("jax.sharding.PartitionSpec", "jax.P")
# What stands between an array of all hosts and one that this host has the whole of.
_BROUGHT = (
    "process_allgather",
    "addressable_data",
    "global_array_to_host_local_array",
    "addressable_shards",
    "replicate",
)
_SHARED = ("process_index", "process_count", "jax.distributed", "multihost_utils", "process_local_data")
_SAME = ("astype", "reshape", "transpose", "squeeze", "copy", "swapaxes", "clip", "block_until_ready")
_DEEPEST, _MOST = 6, 4


class HostFetchOfGlobalArray(LocalRule, ProgramRule):
    """
    ## What it does
    Finds `np.asarray`, `np.array`, `jax.device_get`, `.item()` and `float()` of an array that is sharded over the
    devices of all processes. Such arrays come from `make_array_from_process_local_data`, `device_put` with a sharding
    over a mesh axis, or a `jit` or `shard_map` with such `out_shardings` or `out_specs`.

    ## Why is this bad
    A process can read only what is on its own devices.

    ## What happens with N processes
    `RuntimeError: Fetching value for jax.Array that spans non-addressable devices`. With one process it works.

    ## Known problems
    What a `jit` without `out_shardings` returns is not known: a loss is replicated, a state may not be.

    ## Use instead
    `multihost_utils.process_allgather(x, tiled=True)` on every process. For small values (a loss), a jit with
    replicated `out_shardings`.

    ## Fix safety
    There is no automatic fix: the gather must be where all processes reach it.
    """

    code, name, severity, row = "AR609", "host-fetch-of-global-array", "error", "sharding"
    cluster = "RuntimeError: the array spans devices that this process cannot address."
    advice = "Gather it first on every process: multihost_utils.process_allgather(x, tiled=True)."
    words = ("jax",)
    nodes = (ast.Call,)
    calls = (*FETCHES, *_WRITES, *TREE_MAPS, "item", "tolist")
    bad = (
        Example(
            {
                "train.py": """\
import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P


def main(mesh, rows):
    sharding = NamedSharding(mesh, P("data"))
    x = jax.make_array_from_process_local_data(sharding, rows)
    print(np.asarray(x))
    y = jax.device_put(rows, sharding)
    if jax.process_index() == 0:
        print(jax.device_get(y))
"""
            },
            at=(9, 12),
        ),
        Example(
            {
                "train.py": """\
import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("data",))
step = jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, P("data")))
out = step(np.ones(8))
print(np.array(out))
"""
            },
            at=(9,),
        ),
        # Through helpers of another file, a dictionary and tree_map; a shard_map with a row for each device.
        Example(
            {
                "evaluate.py": """\
import functools

import jax
import numpy as np
import sharded


class Judge:
    def __init__(self, mesh):
        self.mesh = mesh

    def score(self, loader):
        lift = functools.partial(sharded.lift, mesh=self.mesh)
        for rows in loader:
            batch = jax.tree.map(lift, rows)
            yield np.asarray(batch["labels"]).sum()
            yield jax.tree.map(np.asarray, batch)
            yield jax.device_get(batch)


def seed(value):
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("all",))
    add = jax.shard_map(lambda x: jax.lax.psum(x, "all"), mesh=mesh, in_specs=jax.P("all"), out_specs=jax.P("all"))
    value = np.array([value] * jax.device_count())
    value = add(value)
    return np.sum(value)


if __name__ == "__main__":
    print(jax.process_index(), seed(3), list(Judge(None).score([])))
""",
                "sharded.py": """\
import jax
from jax.sharding import NamedSharding, PartitionSpec


def lift(x, mesh):
    return jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("data")), x)
""",
            },
            at=(16, 17, 18, 26),
        ),
    )
    good = (
        # Replicated; gathered; one process.
        Example(
            {
                "evaluate.py": """\
import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec


def lift(x, mesh, spec=None):
    return jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("data")), x)


def same(x, mesh):
    return jax.make_array_from_callback(x.shape, NamedSharding(mesh, PartitionSpec()), lambda at: x[at])


def score(loader, mesh, step):
    for rows in loader:
        batch = jax.tree.map(lambda x: lift(x, mesh), rows)
        yield float(jax.jit(step)(batch)), np.asarray(same(rows, mesh))
        yield np.asarray(multihost_utils.process_allgather(batch["labels"], tiled=True))
        yield [np.asarray(part.data) for part in batch["labels"].addressable_shards]
        if jax.process_count() == 1:
            yield jax.device_get(batch)


def here(x):
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()), ("own",))
    return np.sum(jax.shard_map(lambda x: x, mesh=mesh, in_specs=jax.P("own"), out_specs=jax.P("own"))(x))


print(jax.process_index(), list(score([], None, None)), here(1))
"""
            }
        ),
        Example(
            {
                "train.py": """\
import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import NamedSharding, PartitionSpec as P


def main(mesh, rows):
    sharding = NamedSharding(mesh, P("data"))
    x = jax.make_array_from_process_local_data(sharding, rows)
    print(np.asarray(process_allgather(x, tiled=True)))
    print(np.asarray(x.addressable_data(0)))
    y = jax.device_put(rows, NamedSharding(mesh, P()))
    print(np.asarray(y), x.shape[0])
    step = jax.jit(lambda x: x.mean(), out_shardings=NamedSharding(mesh, P()))
    print(float(step(x)))
"""
            }
        ),
        # Each host has the whole, and nobody says that it is cut.
        Example(
            {
                "train.py": """\
import flax.linen as nn
import jax


def spread(tree, mesh):
    shardings = nn.get_sharding(tree, mesh)
    lay = lambda x, sharding: jax.make_array_from_process_local_data(sharding, x, x.shape)
    return jax.tree_util.tree_map(lay, tree, shardings)


def main(stats, mesh):
    stats = spread(stats, mesh)
    print(jax.process_index(), jax.device_get(stats))


main({}, None)
"""
            }
        ),
        Example(
            {
                "alone.py": """\
import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((8,), ("data",))
print(np.asarray(jax.device_put(np.ones(8), NamedSharding(mesh, P("data")))))
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        array = _fetched(node, file) if isinstance(node, ast.Call) and not file.is_test else None
        if array is None or not any(word in file.text for word in _SHARED):
            return
        if distributed(file) and _spans(array, file, 0):
            yield self.local(
                file,
                node,
                f"{ast.unparse(array)} is sharded over the devices of all processes, and this process fetches it",
            )

    def check(self, program: Program) -> Iterator[Finding]:
        for event in program.calls(*FETCHES, *FETCHING_METHODS):
            parts = any("parts" in value.flags for value in event.arguments)
            if parts and (event.active or event.place.path in program.facts.several):
                yield self.found(event, "an array of which this process holds only a part is fetched completely")


def _lies_here(mesh: ast.expr | None, file: File) -> bool:
    """A mesh is of this process' own devices."""
    return mesh is not None and any("local_" in ast.unparse(at) for at in reached(mesh, file))


def _fetched(call: ast.Call, file: File) -> ast.expr | None:
    """Return the array that ``call`` brings to this host."""
    name = name_of(call, file)
    if name in TREE_MAPS and len(call.args) > 1 and name_of(call.args[0], file) in FETCHES:
        return call.args[1]
    if name in FETCHES or name in _WRITES:
        position = int(name == "numpy.save")
        return call.args[position] if len(call.args) > position else None
    is_item = isinstance(call.func, ast.Attribute) and call.func.attr in ("item", "tolist") and not call.args
    return call.func.value if is_item and isinstance(call.func, ast.Attribute) else None


def _spans(node: ast.expr, file: File, depth: int) -> bool:
    """``node`` is certainly an array that all processes hold parts of."""
    if depth > _DEEPEST:
        return False
    if isinstance(node, ast.Name):
        stored = latest(node, file)
        return 0 < len(stored) <= _MOST and all(_spans(v, file, depth + 1) for v in stored)
    if not isinstance(node, ast.Call):
        return False
    name = name_of(node, file)
    if any(word in name for word in _BROUGHT):
        return False
    if name in _GLOBAL:
        return _sharded(node.args[0] if node.args else None, file)
    if name == "jax.device_put":
        return _sharded(given(node, 1, "device"), file)
    if isinstance(node.func, ast.Attribute) and node.func.attr in _SAME:
        return _spans(node.func.value, file, depth + 1)
    return any(
        isinstance(made, ast.Call) and _returns_parts(made, file) for made in (node.func, *values(node.func, file))
    )


def _returns_parts(made: ast.Call, file: File) -> bool:
    """A function gives arrays of which each process has a part."""
    name = name_of(made, file)
    if name == "functools.partial" and made.args:
        name = name_of(made.args[0], file)
    if name == "jax.shard_map":
        return _sharded(keyword(made, "out_specs"), file) and not _lies_here(keyword(made, "mesh"), file)
    return name == "jax.jit" and _sharded(keyword(made, "out_shardings"), file)


def _sharded(sharding: ast.expr | None, file: File) -> bool:
    """``sharding`` names an axis of a mesh: ``NamedSharding(mesh, P("data"))``."""
    if isinstance(sharding, ast.Name | ast.Attribute):
        stored = values(sharding, file)
        return len(stored) == 1 and isinstance(stored[0], ast.Call) and _sharded(stored[0], file)
    if not isinstance(sharding, ast.Call):
        return False
    if tail_of(sharding) == "NamedSharding":
        return _sharded(given(sharding, 1, "spec"), file) and not _lies_here(given(sharding, 0, "mesh"), file)
    if name_of(sharding, file) in _SPECS or tail_of(sharding) == "P":
        return any(isinstance(a, ast.Constant) and isinstance(a.value, str) for a in sharding.args)
    return False
