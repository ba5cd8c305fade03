import functools
import jax

jax.distributed.initialize()

@functools.partial(jax.jit, out_shardings=None)
def sample(p):
    return p
if jax.process_index() == 0:
    sample(1)  # missed: AR204
