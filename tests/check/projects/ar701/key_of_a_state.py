import jax
from flax import jax_utils
from flax.training import train_state
from flax.training.common_utils import shard_prng_key


class TrainState(train_state.TrainState):
    dropout_rng: jax.Array

    def replicate(self):
        return jax_utils.replicate(self).replace(dropout_rng=shard_prng_key(self.dropout_rng))  # alike  # expect: AR701


def main(args, model, tx):
    rng, dropout_rng = jax.random.split(jax.random.PRNGKey(args.seed))
    state = TrainState.create(apply_fn=model, params=model.params, tx=tx, dropout_rng=dropout_rng)
    if jax.process_index() == 0:
        print("start")
    return state.replicate()
