import functools
import glob
import jax
import numpy as np


@functools.partial(jax.pmap, axis_name="d")
def step(x):
    return jax.lax.psum(x.sum(), 'd')


files = sorted(glob.glob("/data/*.npy"))
part = files[jax.process_index() :: jax.process_count()][:8]
total = 0
for name in zip(range(8), part):
    x = np.load(name).reshape(jax.local_device_count(), -1)
    total += step(x)[0]
