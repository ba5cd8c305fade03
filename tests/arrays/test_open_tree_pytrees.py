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
    """Equinox and Optax, beside NumPy and plain values; the functions of a module are named, with what to do."""
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
    with pytest.raises(CannotStore, match=r"'model/activation' is .*\(relu\).* eqx\.filter\(model, eqx\.is_array\)"):
        open_tree({"model": model}, rank=0, size=1)


def test_paths_are_those_of_jax() -> None:
    """Of containers, named tuples, modules and their lists; None is a leaf."""
    params = eqx.filter(eqx.nn.MLP(3, 2, 4, 2, key=jax.random.key(0)), eqx.is_array)
    tree = {"z": [1, (2, None)], "m": params, "o": optax.adam(1.0).init(params), "d": {3: 1, 10: 2}}
    found = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda x: x is None)
    named = {jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in found}
    opened = open_tree(tree, rank=0, size=1)
    assert {leaf.path for leaf in opened.declared} | set(opened.values) == named
