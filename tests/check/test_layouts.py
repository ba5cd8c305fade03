"""How arrays lie: what a sharding, a spec or a mesh says, followed through attributes, files and compiled functions."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

LEARNER = """\
import jax
import numpy as np
from jax.experimental.shard_map import shard_map
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P


def features(batch):
    return batch * 2


class Learner:
    def __init__(self, model):
        mesh = Mesh(np.array(jax.devices()), ("rows",))
        self.whole, self.rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("rows"))
        self.loss = jax.jit(model.loss, out_shardings=self.whole)
        self.features = jax.jit(features, out_shardings=self.rows)
        self.draw = drawing(model, mesh)
        own = Mesh(np.array(jax.local_devices()), ("rows",))
        self.here = jax.jit(features, out_shardings=NamedSharding(own, P("rows")))


def drawing(model, mesh):
    cut = P("rows")
    return jax.jit(shard_map(lambda key: model.draw(key), mesh=mesh, in_specs=(P(),), out_specs=cut))
"""
TRAIN = """\
import jax
import numpy as np
from learner import Learner


def main(model, batch, key):
    learner = Learner(model)
    print(jax.process_index(), np.asarray({}))


if __name__ == "__main__":
    main(None, None, None)
"""
LYING = {
    "learner.features(batch)": True,
    "learner.draw(key)": True,
    "jax.device_put(batch, learner.rows)": True,
    "jax.make_array_from_process_local_data(learner.rows, batch)": True,
    "learner.loss(batch)": False,
    "learner.here(batch)": False,
    "jax.device_put(batch, learner.whole)": False,
    "jax.make_array_from_process_local_data(learner.whole, batch)": False,
    "jax.experimental.multihost_utils.process_allgather(learner.features(batch), tiled=True)": False,
}


@pytest.mark.parametrize("array", LYING)
def test_a_fetch_is_found_where_the_array_lies_in_parts(array: str) -> None:
    """The sharding is made in another file, kept in an attribute, or given to a shard_map."""
    sources = {"learner.py": LEARNER.encode(), "train.py": TRAIN.format(array).encode()}
    found = [(f.place.path, f.place.line) for f in check(sources, Settings(select=("AR609",))).findings]
    assert found == ([("train.py", 8)] if LYING[array] else [])
