"""Process 0 alone waits for all after its save; in the twin all processes do."""

import sys

import jax
import numpy as np
from jax.experimental import multihost_utils

FIXED = "--fixed" in sys.argv
jax.distributed.initialize()
rank, size = jax.process_index(), jax.process_count()
if rank == 0:
    np.save("weights.npy", np.ones(4))
if rank == 0 or FIXED:
    multihost_utils.sync_global_devices("saved")  # BUG AR201
mean = multihost_utils.process_allgather(np.ones(2)).mean()
