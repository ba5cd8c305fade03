"""Rank 0 tries every entrance to a computation across processes alone; then both ranks show that no harm was done."""

import json
import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from allranks.errors import CollectiveOnOneRank
from allranks.world.guards.detect import one_rank

rank = int(os.environ["RANK"])
jax.distributed.initialize(f"127.0.0.1:{os.environ['JAX_COORDINATOR_PORT']}", 2, rank)


def attempt(call):
    try:
        call()
    except CollectiveOnOneRank as error:
        return str(error)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return None


refused = {}
found = {"refused": refused}
if rank == 0:
    with one_rank(0):
        refused["first use"] = attempt(lambda: jnp.ones(2) + 1)

mesh = Mesh(jax.devices(), "d")
split, whole = NamedSharding(mesh, PartitionSpec("d")), NamedSharding(mesh, PartitionSpec())
x = jax.make_array_from_process_local_data(split, np.arange(2.0) + 2 * rank)
replicated = jax.jit(lambda x: x.sum(), out_shardings=whole)(x)
traces = []


@jax.jit
def total(x):
    traces.append("total")
    return x.sum()


@jax.jit
def local(x):
    traces.append("local")
    return x * 2 + 1


ahead = total.lower(x).compile()
y = jnp.ones(3)
for _ in range(3):
    total(x), ahead(x), local(y), x.sum(), x + 1
client = jax._src.distributed.global_state.client
traces.clear()

ENTRANCES = {
    "jit in the cache": lambda: total(x),
    "compiled ahead": lambda: ahead(x),
    "new jit": lambda: jax.jit(lambda x: x * 3)(x),
    "eager method": lambda: x.sum(),
    "eager operator": lambda: x + 1,
    "indexing": lambda: x[0],
    "replicated operand": lambda: replicated + 1,
    "grad": lambda: jax.grad(lambda x: (x**2).sum())(x),
    "shard_map": lambda: jax.shard_map(
        lambda x: jax.lax.psum(x, "d"), mesh=mesh, in_specs=PartitionSpec("d"), out_specs=PartitionSpec()
    )(x),
    "output across processes": lambda: jax.jit(lambda: jnp.zeros(4), out_shardings=split)(),
    "disable_jit": lambda: with_disabled_jit(lambda: x + 1),
    "device_put": lambda: jax.device_put(np.arange(4.0), split),
    "reshard": lambda: jax.device_put(x, whole),
    "float": lambda: float(x.sum()),
    "reading a value": lambda: np.asarray(x),
    "process_allgather": lambda: multihost_utils.process_allgather(np.ones(2)),
    "process_allgather of a sharded array": lambda: multihost_utils.process_allgather(x, tiled=True),
    "broadcast_one_to_all": lambda: multihost_utils.broadcast_one_to_all(np.ones(2)),
    "sync_global_devices": lambda: multihost_utils.sync_global_devices("here"),
    "assert_equal": lambda: multihost_utils.assert_equal(np.ones(2)),
    "coordination barrier": lambda: client.wait_at_barrier("here", 10_000),
    "live processes": lambda: client.get_live_nodes([0, 1]),
}


def with_disabled_jit(call):
    with jax.disable_jit():
        return call()


def allowed():
    """What needs no other process."""
    local(y), local(y)
    jax.block_until_ready(x)
    fresh = jax.jit(lambda x: x - 1)(np.ones(3))
    mine = x.addressable_data(0)
    return [np.asarray(replicated).item(), float(replicated), str(mine + 1), fresh.tolist(), repr(x)[:5]]


if rank == 0:
    for _ in range(2):
        for name, call in ENTRANCES.items():
            with one_rank(0):
                refused[name] = attempt(call)
    with one_rank(0):
        found["allowed"] = allowed()
total(x), ahead(x), local(y)
found["after"] = [float(total(x)), np.asarray(multihost_utils.process_allgather(x, tiled=True)).tolist()]
found["traces"] = traces
client.wait_at_barrier("end", 60_000)
print("RESULT", json.dumps(found), flush=True)
