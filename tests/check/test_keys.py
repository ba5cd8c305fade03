"""Keys of JAX that are the same on all devices or processes: where AR701 sees them, and where they are not."""

from __future__ import annotations

from allranks.check.engine import Settings, check

STATE = """\
import jax
from flax import jax_utils
from flax.training import train_state
from flax.training.common_utils import shard_prng_key


class TrainState(train_state.TrainState):
    dropout_rng: jax.Array

    def replicate(self):
        return jax_utils.replicate(self).replace(dropout_rng=shard_prng_key(self.dropout_rng))  # alike


def main(args, model, tx):
    rng, dropout_rng = jax.random.split(jax.random.PRNGKey(args.seed))
    state = TrainState.create(apply_fn=model, params=model.params, tx=tx, dropout_rng=dropout_rng)
    if jax.process_index() == 0:
        print("start")
    return state.replicate()
"""
OWN = """\
import jax
from flax import jax_utils
from flax.training.common_utils import shard_prng_key
from jax.sharding import PartitionSpec as P


class State(TrainState):
    dropout_rng: jax.Array

    def replicate(self):
        key = jax.random.fold_in(self.dropout_rng, jax.process_index())
        return jax_utils.replicate(self).replace(dropout_rng=shard_prng_key(key))


def noisy(x, key, place):
    key = jax.random.fold_in(key, place[0])
    return x + jax.random.normal(key, x.shape)


def made(key):
    return jax.random.normal(key, (8, 8))


def build(mesh):
    noise = jax.shard_map(noisy, mesh=mesh, in_specs=(P("data"), P(), P("data")), out_specs=P("data"))
    params = jax.shard_map(made, mesh=mesh, in_specs=(P(),), out_specs=P())
    per_device = jax.shard_map(lambda x, key: jax.random.normal(key[0], x.shape),
        mesh=mesh, in_specs=(P("data"), P("data")), out_specs=P("data"))
    return noise, params, per_device
"""


def lines(**files: str) -> list[tuple[str, int]]:
    sources = {f"{name}.py": text.encode() for name, text in files.items()}
    found = check(sources, Settings(select=("AR701",))).findings
    return [(finding.place.path, finding.place.line) for finding in found]


def marked(text: str) -> list[tuple[str, int]]:
    return [("train.py", number) for number, line in enumerate(text.splitlines(), 1) if line.endswith("# alike")]


def test_a_key_of_a_state_is_followed_to_where_the_state_is_made() -> None:
    """Each process splits the key that the class was given."""
    assert lines(train=STATE) == marked(STATE)


def test_keys_that_hold_the_place_differ() -> None:
    """The process or the place is folded in, the key itself is cut, or nothing but parameters is made."""
    assert lines(train=OWN) == []
