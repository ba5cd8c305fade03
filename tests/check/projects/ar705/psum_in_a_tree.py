import functools
import jax
import optax

tx = optax.sgd(0.1)


@functools.partial(jax.pmap, axis_name="d")
def step(state, opt, x):
    (loss, aux), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params, x)
    grads = jax.tree.map(lambda g: jax.lax.psum(g, 'd') / 8, grads)
    updates, opt = tx.update(grads, opt)
    state = state.replace(params=optax.apply_updates(state.params, updates))
    return state, opt, jax.lax.pmean(loss, 'd')
