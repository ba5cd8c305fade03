import jax
from jax.sharding import NamedSharding, PartitionSpec as P

jax.distributed.initialize()

def main(mesh, state):
    state = jax.device_put(state, NamedSharding(mesh, P('data')))
    step, score = jax.jit(lambda s: (s, 1)), jax.jit(lambda p: p)
    for _ in range(3):
        state, metrics = step(state)
        if jax.process_index() == 0:
            score(state.params)  # expect: AR204
