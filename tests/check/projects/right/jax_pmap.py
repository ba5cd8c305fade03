import functools
import jax
import jax.numpy as jnp
import optax

jax.distributed.initialize()
tx = optax.sgd(0.1)

@functools.partial(jax.pmap, axis_name='batch')
def train_step(params, opt_state, x):
    grads = jax.grad(lambda p: jnp.mean(p * x))(params)
    grads = jax.lax.pmean(grads, 'batch')
    updates, opt_state = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state

key = jax.random.fold_in(jax.random.key(0), jax.process_index())
for step in range(10):
    key, sub = jax.random.split(key)
    params, opt_state = train_step(params, opt_state, jax.random.normal(sub, (jax.local_device_count(), 4)))
if jax.process_index() == 0:
    print(jax.tree.map(lambda x: x[0], params))
