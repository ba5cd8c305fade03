"""A jax whose private names have moved, or have lost their effect: what is still refused?"""

import sys
import warnings

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

from allranks.errors import CollectiveOnOneRank
from allranks.world.guards import jax as guard
from allranks.world.guards.detect import one_rank

jnp.ones(2)
# One process stands for several: the guard only asks whether there are others.
guard._spans_processes = lambda: True
settings = jax._src.config.config_ext
if sys.argv[1] == "moved":
    del settings.Config
else:
    real = settings.Config
    settings.Config = lambda name, default, **_: real(name, default)

with warnings.catch_warnings(record=True) as warned:
    for _ in range(2):
        with one_rank(0):
            jnp.ones(2) + 1
            try:
                multihost_utils.sync_global_devices("here")
            except CollectiveOnOneRank as error:
                print(error)
(said,) = warned
assert said.category is RuntimeWarning
print(said.message)
multihost_utils.sync_global_devices("outside")
