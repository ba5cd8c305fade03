"""One process gets another shape in each step and compiles again; the twin pads its rows."""

import sys

import jax
import numpy as np
from jax.experimental import multihost_utils

FIXED = "--fixed" in sys.argv
jax.distributed.initialize()
rank, size = jax.process_index(), jax.process_count()
total_of = jax.jit(lambda x: x.sum())
for number in range(6):
    rows = np.ones((8 if FIXED or rank == 0 else 2 + number, 4), "f4")
    total = total_of(rows)  # BUG AR014
    multihost_utils.process_allgather(total)
