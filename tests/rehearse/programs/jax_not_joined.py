"""Each process is process 0 of one; the twin joins the processes first."""

import sys

import jax
import numpy as np
from jax.experimental import multihost_utils

FIXED = "--fixed" in sys.argv
if FIXED:
    jax.distributed.initialize()
rank = jax.process_index()  # BUG AR601
size = jax.process_count()
total = multihost_utils.process_allgather(np.ones(2)).sum() if size > 1 else 2.0
if rank == 0:
    np.save("total.npy", total)
