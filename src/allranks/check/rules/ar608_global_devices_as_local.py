"""AR608: what a process gives to its own devices is counted or placed by the devices of all processes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.batches import READERS, oversized
from allranks.check.tree.counts import Scale
from allranks.check.tree.leading import BATCHING, MAKERS, SHAPERS, STEPS, collected, leading
from allranks.check.tree.placed import CALLS, OF_HOST, misplaced
from allranks.findings import Edit, Finding, Fix, Note


class GlobalDevicesAsLocal(LocalRule):
    """
    ## What it does
    Finds a process of a JAX program that uses the devices of all processes as its own:

    - rows or keys for `jax.pmap` are cut, made or stacked with `jax.device_count()` as the leading axis
    - the reader of one process gets the size of a batch of all devices
    - something is put on `jax.devices()[0]`, or the memory of that device is read; `device_put_replicated` and similar
      calls get `jax.devices()`

    Numbers are followed through variables, attributes, parameters and helper functions of the file.

    ## Why is this bad
    What a process gives to `pmap` has a row for each of *its own* devices, and a process can use no device of another
    one. On one host the two are the same, so the fault is not seen there.

    ## What happens with N processes
    `pmap` raises ValueError on every rank (compiling for more devices than are attached), or the batch cannot be
    divided. `jax.devices()[0]` belongs to process 0: on the others it raises. If each process reads a batch of all
    devices, the batch is N times as large as intended.

    ## Known problems
    Numbers are followed within one file. Programs of which no file uses the number of the process are not checked.

    ## Use instead
    `jax.local_device_count()`, `jax.local_devices()`; `batch // jax.process_count()` for what one process reads.

    ## Fix safety
    Unsafe: sizes that were computed from the old number may have to change with it.
    """

    code, name, severity, row = "AR608", "global-devices-as-local", "error", "sharding"
    cluster = "It raises, or the sizes are wrong by the number of processes: a process has its own devices only."
    advice = "Use jax.local_device_count() and jax.local_devices() for what this process gives to its own devices."
    words = ("device_count", "devices", "global", "total")
    nodes = (ast.Call, ast.Compare)
    calls = (*SHAPERS, *MAKERS, *STEPS, *BATCHING, *READERS, *CALLS)
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
        # Through an attribute, a helper function and a parameter; nobody else asks for the process.
        Example(
            {
                "parallel.py": """\
import functools

import jax
import jax.numpy as jnp


def replicas():
    return len(jax.devices())


class Learner:
    def __init__(self, loss):
        self.workers = replicas()
        self.loss = loss

    def rows(self, batch):
        return jax.tree_util.tree_map(lambda x: jnp.reshape(x, [self.workers, -1, *x.shape[1:]]), batch)


def copies(tree, count):
    return jax.tree_util.tree_map(lambda x: jnp.broadcast_to(x, (count,) + x.shape), tree)


@functools.partial(jax.pmap, axis_name="i")
def update(params, batch):
    return jax.lax.pmean(jax.grad(lambda p: p)(params), "i")


def run(learner, params, batch):
    return update(copies(params, learner.workers or replicas()), learner.rows(batch))
"""
            },
            at=(17, 21),
        ),
        Example(
            {
                "input.py": """\
import jax


def pairs(examples, size, parts=None):
    parts = parts or jax.device_count()
    size //= parts
    cut = []
    for example in examples:
        cut.append(example[:size])
        if len(cut) == parts:
            yield cut
            cut = []


def stacked(ds, total):
    n = jax.device_count()
    return ds.batch(total // n).batch(n, drop_remainder=True)
""",
                "train.py": """\
import jax
import input

MAIN = jax.process_index() == 0
""",
            },
            at=(10, 17),
        ),
        Example(
            {
                "train.py": """\
import jax
from flax.training.common_utils import shard
from torch.utils.data import DataLoader


def main(args, rows, step):
    batch_size = int(args.per_device_batch_size) * jax.device_count()
    step = jax.pmap(step, "batch")
    for batch in DataLoader(rows, batch_size=batch_size):
        step(shard(batch))
    if jax.process_index() == 0:
        print("done")


def read(files, global_batch_size):
    files = files.shard(jax.process_count(), jax.process_index())
    return files.batch(global_batch_size)
"""
            },
            at=(9, 17),
        ),
        # The shape has a name; what stands for the process is that gradients are averaged.
        Example(
            {
                "train.py": """\
import jax
import jax.numpy as jnp

update = jax.pmap(lambda x: jax.lax.pmean(x, "i"), axis_name="i")


def start(key, rows, size, params):
    n = jax.device_count()
    shape = (n, size // n)
    params = jax.tree_util.tree_map(lambda p: jnp.stack([p for _ in range(n)]), params)
    key, *keys = jax.random.split(key, n + 1)
    for i in range(0, len(rows), n):
        update(rows[i : i + n])
    return update(jnp.zeros(shape + (3,))), params, keys
"""
            },
            at=(10, 11, 12, 14),
        ),
        Example(
            {
                "memory.py": """\
import jax
from jax import numpy as jnp


def used(devices):
    return [device.memory_stats()["bytes_in_use"] for device in devices]


def report():
    accelerators = jax.devices()
    print(jax.process_index(), used(accelerators))


def resized(image):
    return jax.image.resize(jax.device_put(image, jax.devices()[0]), (8, 8), "linear")


def everywhere(tree):
    with jax.default_device(jax.devices()[0]):
        tree = jax.tree_util.tree_map(jnp.asarray, tree)
    return jax.device_put_replicated(tree, jax.devices())
"""
            },
            at=(6, 15, 19, 21),
        ),
        # The processes are joined, so that their CPUs are everybody's too.
        Example(
            {
                "train.py": """\
import jax
import jax.numpy as jnp

jax.distributed.initialize()
print(jax.process_index())
seed = jax.device_put(0, jax.devices("cpu")[0])


def rows(parts, backend):
    devices = jax.devices(backend=backend)
    own = [jax.device_put(part, device) for part, device in zip(parts, jax.devices())]
    return own or [jnp.ones(8, device=device) for device in devices[::-1]]
"""
            },
            at=(6, 11, 12),
        ),
    )
    good = (
        # One process fetches for all devices of a mesh; what was gathered has a row for each of them.
        Example(
            {
                "train.py": """\
import jax
from jax.experimental import multihost_utils

step = jax.pmap(lambda x: x)


def norms(x):
    return multihost_utils.process_allgather(x).reshape(jax.device_count(), -1)


def batches(ds, batch_size):
    ds = ds.batch(batch_size // jax.device_count(), drop_remainder=True)
    return ds.batch(jax.local_device_count(), drop_remainder=True)


def keys(key):
    own = jax.process_index() * jax.local_device_count()
    rows = jax.random.split(key, jax.device_count())
    by_process = jax.random.split(key, jax.device_count()).reshape(jax.process_count(), jax.local_device_count(), -1)
    return rows[own : own + jax.local_device_count()], by_process[jax.process_index()]


def sizes(config):
    n = jax.device_count() // jax.process_count()
    return jax.random.split(config.key, n), config.batch_size * n


def place(x):
    if jax.process_index() == 0:
        x = jax.device_put(x, jax.devices()[0])
    kind = jax.devices()[0].device_kind
    return jax.device_put(x, jax.local_devices()[0]), jax.device_put(x, jax.devices("cpu")[0]), kind


def copies(x):
    own = [jax.device_put(x, d) for d in jax.devices() if d.process_index == jax.process_index()]
    for device in jax.devices():
        if device.process_index != jax.process_index():
            continue
        own.append(jax.numpy.zeros(3, device=device))
    return own
"""
            }
        ),
        # A demonstration on one host.
        Example(
            {
                "demo.py": """\
import jax

draw = jax.pmap(lambda key: jax.random.normal(key, (8,)))
print(draw(jax.random.split(jax.random.PRNGKey(0), jax.device_count())))
"""
            }
        ),
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

    def applies(self, file: File) -> bool:
        return not file.is_test and "jax" in file.text

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.Compare):
            if (count := collected(node, file)) is not None:
                yield self._counted(file, node, count, "batches for the devices of all processes are stacked")
        elif isinstance(node, ast.Call):
            if (count := leading(node, file)) is not None:
                yield self._counted(file, node, count, "the leading axis for pmap counts the devices of all processes")
            elif size := oversized(node, file):
                message = "the reader of one process gets the batch size of all processes"
                if isinstance(size, Scale):
                    yield self._counted(file, node, size, message)
                else:
                    yield self.local(file, node, f"{message}: {size}")
            elif (wrong := misplaced(node, file)) is not None:
                asked = wrong.asked
                notes = [Note("all devices are used here", file.place(asked))] if asked is not None else []
                yield self.finding(file.place(node), file.symbol(node), wrong.what, notes=notes)

    def stands(self, finding: Finding, program: Program) -> bool:
        path, facts = finding.place.path, program.facts
        if finding.message.endswith(OF_HOST) and not any(
            "distributed.initialize" in line for one in facts.around(path) for line in facts.lines[one]
        ):
            return False
        return path in facts.several

    def _counted(self, file: File, node: ast.AST, count: Scale, message: str) -> Finding:
        """Return a finding that shows where the count was asked for; one that stands in the call can be mended."""
        asked, fix = count.source, None
        notes = [Note("counted here", file.place(asked))] if asked is not None else []
        text = ast.unparse(asked) if asked is not None else ""
        here = count.all_devices and any(at is asked for at in walk(node))
        if asked is not None and here and text.endswith("device_count()"):
            text = text.replace("device_count", "local_device_count")
            fix = Fix("local_device_count()", (Edit(file.place(asked), text),), safe=False)
        return self.finding(file.place(node), file.symbol(node), message, notes=notes, fix=fix)
