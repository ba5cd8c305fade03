"""Equinox modules and Optax states in checkpoints: what JAX knows how to take apart."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax
import pytest
from trees import carried

from allranks.arrays.detect import open_tree
from allranks.errors import CannotStore


def test_modules_and_optimizer_states_keep_their_types() -> None:
    """Equinox and Optax, beside NumPy and plain values."""
    model = eqx.nn.MLP(3, 2, 4, 2, key=jax.random.key(0))
    optimizer = optax.chain(optax.clip(1.0), optax.adamw(optax.linear_schedule(1.0, 0.0, 9)))

    def state_of(model: Any) -> dict[str, Any]:
        params = eqx.filter(model, eqx.is_array)
        return {"model": params, "opt": optimizer.init(params), "seen": np.zeros(2), "epoch": 3, "best": None}

    state = jax.tree.map(lambda x: x + 1, state_of(model))
    back = carried(state, state_of(model))
    assert jax.tree.structure(back) == jax.tree.structure(state)
    assert all(np.array_equal(one, other) for one, other in zip(*map(jax.tree.leaves, (back, state)), strict=True))
    assert type(back["seen"]) is np.ndarray
    assert back["epoch"] == 4


class Net(eqx.Module):
    """What tutorials have: functions among the layers, a running mean, a setting."""

    layers: list[Any]
    norm: eqx.nn.BatchNorm
    rate: float

    def __init__(self, key: Any, rate: float) -> None:
        self.layers = [eqx.nn.Linear(3, 4, key=key), jax.nn.relu, eqx.nn.MLP(4, 2, 4, 1, key=key)]
        self.norm = eqx.nn.BatchNorm(2, "batch", mode="batch")
        self.rate = rate


def test_an_equinox_module_is_stored_as_it_is() -> None:
    """Its functions stay where they are; its arrays, numbers and ``eqx.nn.State`` go over."""
    model, moving = eqx.nn.make_with_state(Net)(jax.random.key(0), 0.5)
    moving = jax.tree.map(lambda x: x + 1, moving)
    template = dict(zip(("model", "state"), eqx.nn.make_with_state(Net)(jax.random.key(1), 0.1), strict=True))
    back = carried({"model": model, "state": moving}, template)
    assert eqx.tree_equal(back["model"], model)
    assert back["model"].layers[1] is jax.nn.relu
    assert eqx.tree_equal(back["state"], moving)
    with pytest.raises(CannotStore, match=r"'f' is .*\(relu\).* Keep functions out of the state"):
        open_tree({"f": jax.nn.relu}, rank=0, size=1)
    compared = open_tree(model, rank=0, size=1, for_comparison=True)
    assert "relu" in str(compared.values["layers/1"])


OPTIMIZERS = {
    "accumulating": optax.MultiSteps(optax.adam(1e-3), 4),
    "masked": optax.masked(optax.adam(1e-3), lambda p: jax.tree.map(lambda x: x.ndim > 1, p)),
    "injected": optax.inject_hyperparams(optax.adamw)(learning_rate=optax.cosine_decay_schedule(1.0, 9)),
    "partitioned": optax.partition({"a": optax.sgd(0.1, momentum=0.9), "b": optax.set_to_zero()}, {"w": "a", "b": "b"}),
    "averaged": optax.chain(
        optax.contrib.schedule_free_adamw(1e-3), optax.ema(0.9), optax.apply_if_finite(optax.sgd(1), 3)
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_states_of_optax_as_they_are(name: str) -> None:
    """Named tuples in named tuples, with holes where nothing is trained: all of it comes back, of its type."""
    params = {"w": jax.numpy.ones((3, 2)), "b": jax.numpy.ones(2)}
    fresh = OPTIMIZERS[name].init(params)
    used = OPTIMIZERS[name].update(params, fresh, params)[1]
    back = carried({"opt": used}, {"opt": fresh})["opt"]
    assert jax.tree.structure(back) == jax.tree.structure(used)
    assert all(np.array_equal(one, other) for one, other in zip(*map(jax.tree.leaves, (back, used)), strict=True))


def test_paths_are_those_of_jax() -> None:
    """Of containers, named tuples, modules and their lists; None is a leaf."""
    params = eqx.filter(eqx.nn.MLP(3, 2, 4, 2, key=jax.random.key(0)), eqx.is_array)
    tree = {"z": [1, (2, None)], "m": params, "o": optax.adam(1.0).init(params), "d": {3: 1, 10: 2}}
    found = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda x: x is None)
    named = {jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in found}
    opened = open_tree(tree, rank=0, size=1)
    assert {leaf.path for leaf in opened.declared_arrays} | set(opened.values) == named
