"""A long training in which all is well: ``healthy.py FRAMEWORK STEPS SECONDS FILE``, on real ranks.

Rank 1 compiles for about so long at one step, and saves to the file for so long at another; the others wait for it.
"""

import sys
import time

import allranks
from allranks.world.progress import progress

framework, steps, seconds, file = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
LAYERS_A_SECOND = 35  # are compiled, about


def save():
    """Write slowly, as to a file system that many share; stamped as the checkpointer's saves are."""
    before = progress.enter("save", "a large state")
    with open(file, "wb") as out:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            out.write(bytes(100_000))
            out.flush()
            time.sleep(0.1)
    progress.leave(before)


def deep(layers, x):
    for layer in layers:
        x = jax.numpy.tanh(x @ layer.T @ layer)
    return x.mean()


def compile_for_long():
    """Compile for this rank alone: a network so deep that it takes long."""
    layers = [jax.numpy.ones((4, 4)) for _ in range(round(seconds * LAYERS_A_SECOND))]
    jax.jit(jax.grad(deep)).lower(layers, jax.numpy.ones((1, 4))).compile()


world = allranks.init(framework, timeout=600)
if framework == "jax":
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    one_each = NamedSharding(jax.make_mesh((jax.device_count(),), ("d",)), PartitionSpec("d"))
    ones = jax.make_array_from_callback((jax.device_count(),), one_each, lambda _: np.ones(1))
    add = jax.jit(jax.numpy.sum)
    long = {steps // 4: compile_for_long, steps // 2: save}

    def total():
        return float(add(ones))

else:
    import torch
    import torch.distributed as dist

    long = {steps // 2: save}

    def total():
        one = torch.ones(1)
        dist.all_reduce(one)
        return one.item()


for step in range(steps):
    if world.rank == 1 and step in long:
        begin = time.monotonic()
        long[step]()
        print(f"took {time.monotonic() - begin:.0f} s", flush=True)
    assert total() == world.size
world.barrier("end")
print("done")
