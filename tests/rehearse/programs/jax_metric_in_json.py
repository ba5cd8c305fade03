"""Process 0 writes the score of its own rows as JSON; the twin gathers the scores of all."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

FIXED = "--fixed" in sys.argv
jax.distributed.initialize()
rank, size = jax.process_index(), jax.process_count()
score_of = jax.jit(lambda x: jnp.square(x).mean())
history = []
for number in range(4):
    score = np.asarray(score_of(np.full((2, 4), 1.0 + rank + number, "f4")))
    if FIXED:
        score = multihost_utils.process_allgather(score).mean()
    history.append(float(score))
if rank == 0:
    with open("history.json", "w") as file:
        json.dump({"score": history}, file)  # BUG AR310
multihost_utils.sync_global_devices("end")
