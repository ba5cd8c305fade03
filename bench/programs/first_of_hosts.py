"""A rank on one of several hosts: says when its first collective is done, and then fails if it is told to."""

import sys
import time

framework, event = sys.argv[1], sys.argv[2]
if framework == "jax":
    import jax
    import numpy as np

    jax.distributed.initialize()
    from jax.experimental import multihost_utils

    rank = jax.process_index()

    def collective():
        multihost_utils.process_allgather(np.array([rank]))
else:
    import torch
    from torch import distributed

    distributed.init_process_group("gloo")
    rank = distributed.get_rank()

    def collective():
        distributed.all_reduce(torch.ones(1))


collective()
print(f"first collective: {time.time()!r}", flush=True)
for step in range(3000 if event != "none" else 2):
    if event == "raises" and rank == 1 and step == 20:
        print(f"event: {time.time()!r}", flush=True)
        raise ValueError("bad row")
    collective()
    time.sleep(0.02)
