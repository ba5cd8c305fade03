import jax

def mine(x):
    return x[jax.process_index() :: jax.process_count()]
