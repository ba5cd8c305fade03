"""A training loop in which one rank comes to an end: ``endings.py FRAMEWORK FOLDER ENDING [RANK]``, on real ranks.

Every rank leaves its pid in FOLDER/pids. At step 3, RANK (1) leaves the time in FOLDER/end, and ENDING happens to it.
FRAMEWORK ``plain-jax`` is a loop that knows nothing of us.
"""

import os
import signal
import sys
import time
from pathlib import Path

framework, folder, ending = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
victim = int(sys.argv[4]) if len(sys.argv) > 4 else 1
STEPS = 400

if framework.endswith("jax"):
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    def prepare():
        mesh = jax.make_mesh((jax.device_count(),), ("d",))
        one_each = NamedSharding(mesh, PartitionSpec("d"))
        ones = jax.make_array_from_callback((jax.device_count(),), one_each, lambda _: np.ones(1))
        add = jax.jit(jnp.sum)
        return lambda: float(add(ones))

else:
    import torch
    import torch.distributed as dist

    def prepare():
        def total():
            one = torch.ones(1)
            dist.all_reduce(one)
            return one.item()

        return total


def end():
    (folder / "end").write_text(repr(time.time()))
    if ending == "raises":
        raise ValueError("bad row")
    if ending == "leaves":
        sys.exit(0)
    if ending == "killed":
        os.kill(os.getpid(), signal.SIGKILL)


if framework == "plain-jax":
    jax.distributed.initialize()
    rank, size = jax.process_index(), jax.process_count()
else:
    import allranks

    world = allranks.init(framework, timeout=60)
    rank, size = world.rank, world.size

(folder / "pids" / str(os.getpid())).touch()
total = prepare()
for step in range(STEPS):
    assert total() == size
    if step == 3 and rank == victim:
        end()
    time.sleep(0.05)
