"""Keys of JAX that are the same on all devices or processes: where AR701 sees them, and where they are not."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

ALIKE = """\
import functools

import jax
from flax import jax_utils
from flax.training.train_state import TrainState
from jax.experimental.shard_map import shard_map
from jax.sharding import PartitionSpec as P


class State(TrainState):
    dropout_rng: jax.Array

    def replicate(self):
        return jax_utils.replicate(self)  # alike


def train(seed, params, mesh):
    rank, here = jax.process_index(), len(jax.local_devices())
    key, own_key = jax.random.split(jax.random.PRNGKey(seed))
    own_key, envs = jax.random.split(own_key)
    starts = jax.random.split(envs, here)  # alike
    learner = jax_utils.replicate((params, own_key))  # alike
    return jax.pmap(lambda state, key: state, "i")(learner, starts)


def resumed(state):
    return state.replicate()


def noisy(x, state, rng):
    first, second = jax.random.split(rng)  # alike
    return x + jax.random.normal(first, x.shape)


def build(mesh):
    return shard_map(noisy, mesh=mesh, in_specs=(P("data"), P(), P()), out_specs=P("data"))


@functools.partial(shard_map, mesh=None, in_specs=(P(), P()), out_specs=P("data"))
def samples(params, key):
    return jax.random.normal(key, (8, 8))  # alike


masked = jax.pmap(lambda x, key: x * jax.random.bernoulli(key, 0.5, x.shape), in_axes=(0, None))  # alike
"""
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
ROWS = """\
import jax

HERE = jax.local_device_count()


def noise(key, rows):
    return jax.random.normal(key, (HERE, rows, 64))  # alike


def train(step, params, batch, seed):
    jax.distributed.initialize()
    key = jax.random.PRNGKey(seed)
    rows = batch // jax.process_count()
    init_x = jax.random.normal(key, (rows, 64))
    fixed = jax.random.normal(key, (HERE, 8, 64))
    for i in range(100):
        key, sub, t_key = jax.random.split(key, 3)
        t = jax.random.uniform(t_key, shape=(rows,))  # alike
        own = jax.random.fold_in(sub, jax.process_index())
        params = step(params, noise(sub, rows), t, jax.random.normal(own, (rows, 64)))
        mask = jax.random.bernoulli(sub, 0.5, (64, 64))
    return params, init_x, fixed
"""
OPTIONS = """\
import argparse

import jax


def parsed():
    args = argparse.ArgumentParser().parse_args()
    args.seed = args.seed + jax.process_index()
    return args
"""
OPTED = """\
import jax
import options

args = options.parsed()
keys = jax.random.split(jax.random.PRNGKey(args.seed), jax.local_device_count())
if jax.process_index() == 0:
    print(args)
"""


def lines(**files: str) -> list[tuple[str, int]]:
    sources = {f"{name}.py": text.encode() for name, text in files.items()}
    found = check(sources, Settings(select=("AR701",))).findings
    return [(finding.place.path, finding.place.line) for finding in found]


def marked(text: str) -> list[tuple[str, int]]:
    return [("train.py", number) for number, line in enumerate(text.splitlines(), 1) if line.endswith("# alike")]


def test_a_key_is_alike_in_a_state_a_tuple_and_under_maps() -> None:
    """Copied whole with what holds it, or drawn with by a mapped function that never asks where it runs."""
    assert lines(train=ALIKE) == marked(ALIKE)


def test_rows_of_a_process_are_drawn_with_its_own_key() -> None:
    """As many as it has devices, or as are its part of the batch, in a loop; what is drawn once may be meant alike."""
    assert lines(train=ROWS) == marked(ROWS)


def test_a_key_of_a_state_is_followed_to_where_the_state_is_made() -> None:
    """Each process splits the key that the class was given."""
    assert lines(train=STATE) == marked(STATE)


def test_keys_that_hold_the_place_differ() -> None:
    """The process or the place is folded in, the key itself is cut, or nothing but parameters is made."""
    assert lines(train=OWN) == []


def test_a_seed_that_another_file_makes_its_own_differs() -> None:
    """An option is raised by the process where options are read."""
    assert lines(train=OPTED, options=OPTIONS) == []
    assert lines(train=OPTED, options=OPTIONS.replace(" + jax.process_index()", "")) == [("train.py", 5)]


STEP = """
import functools
import jax

@functools.partial(jax.pmap, axis_name="dev")
def step(state, batch, key):
    {asks}
    return state.apply_fn(batch, rngs={{"dropout": key}})
"""
GIVES = """
import jax
from flax import jax_utils
from steps import step

def main(seed, state, batches):
    state = jax_utils.replicate(state)
    keys = jax_utils.replicate(jax.random.PRNGKey(seed))
    for batch in batches:
        state = step(state, batch, keys)
"""


@pytest.mark.parametrize(
    ("asks", "expected"),
    [("pass", [8]), ("key = jax.random.fold_in(key, jax.lax.axis_index('dev'))", [])],
)
def test_one_key_for_all_devices_is_given_to_a_step_of_another_file(asks: str, expected: list[int]) -> None:
    sources = {"train.py": GIVES.encode(), "steps.py": STEP.format(asks=asks).encode()}
    found = check(sources, Settings(select=("AR701",))).findings
    assert [finding.place.line for finding in found] == expected


ORDERED = """\
import jax


def loss(params, rows, key):
    return params.apply(rows, rngs={{"dropout": key}})


if __name__ == "__main__":
    key = jax.random.PRNGKey(1)

    @jax.jit
    def update(params, rows, key):
        def epoch(carry, unused):
            params, key = carry
            key, subkey = jax.random.split(key)
            rows_now = jax.random.permutation(subkey, rows)
            return (params - {step}, key), ()

        return jax.lax.scan(epoch, (params, key), (), length=4)

    on_all = jax.pmap(update, axis_name="devices")
    keys = jax.device_put_replicated(key, jax.local_devices())
    on_all(params(), rows(), keys)
"""


@pytest.mark.parametrize(("step", "found"), [("grad(params, rows_now)", []), ("loss(params, rows_now, subkey)", [22])])
def test_the_same_order_of_own_rows_does_no_harm(step: str, found: list[int]) -> None:
    """Who gives the key to a model has all devices drop the same."""
    findings = check({"a.py": ORDERED.format(step=step).encode()}, Settings(select=("AR701",))).findings
    assert [finding.place.line for finding in findings] == found


DRAWN = """\
import jax
import numpy as np


def batch(data, size, key):
    rows = jax.random.randint(key, [jax.local_device_count() * size], 0, len(data))
    return np.stack([data[row] for row in rows])


def main(folder, steps):
    jax.distributed.initialize()
    part = {part}
    data, key = np.load(f"{{folder}}/train_{{part}}.npy"), jax.random.PRNGKey(0)
    for step in range(steps):
        key, key_batch = jax.random.split(key)
        print(jax.process_index(), batch(data, 8, key_batch))
"""


@pytest.mark.parametrize(("part", "found"), [("jax.process_index()", []), ("0", [6])])
def test_rows_of_a_file_of_this_process_may_be_drawn_with_the_key_of_all(part: str, found: list[int]) -> None:
    """Who draws rows of one file for all takes the same ones in each process."""
    findings = check({"a.py": DRAWN.format(part=part).encode()}, Settings(select=("AR701",))).findings
    assert [finding.place.line for finding in findings] == found
