"""A classifier that reads an image row by row, its state flowing between rows along an ODE; no ranks in it."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental.ode import odeint

CLASSES, SIDE = 10, 8  # of scikit-learn's digits


class Rows(NamedTuple):
    """Samples, as columns."""

    image: Array  # [rows, 8, 8], from 0 to 1
    label: Array  # [rows]
    mask: Array  # [rows]: false where the last batch has no sample


class OdeClassifier(eqx.Module):
    """A recurrent cell for what is seen, and an ODE for what goes on between.

    How fast the state flows depends on what is seen, so the solver takes as many steps as the image asks for: a device
    takes as long as the hardest of its rows.
    """

    cell: eqx.nn.GRUCell
    pull: eqx.nn.Linear
    dropout: eqx.nn.Dropout
    head: eqx.nn.Linear

    def __init__(self, hidden: int, dropout: float, *, key: Array) -> None:
        keys = jax.random.split(key, 3)
        self.cell = eqx.nn.GRUCell(SIDE, hidden, key=keys[0])
        self.pull = eqx.nn.Linear(hidden, hidden, key=keys[1])
        self.dropout = eqx.nn.Dropout(dropout)
        self.head = eqx.nn.Linear(hidden, CLASSES, key=keys[2])

    def __call__(self, image: Array, key: Array) -> Array:
        """Return the logits [10] of one image [8, 8]."""

        def read(state: Array, row: Array) -> tuple[Array, None]:
            pace = 1.0 + jnp.abs(row).mean()

            def flow(state: Array, time: Array, pull: eqx.nn.Linear, pace: Array) -> Array:
                del time
                return pace * (jnp.tanh(pull(state)) - state)

            state = odeint(flow, self.cell(row, state), jnp.array([0.0, 1.0]), self.pull, pace, rtol=1e-3, atol=1e-3)
            return state[-1], None

        state, _ = jax.lax.scan(read, jnp.zeros(self.cell.hidden_size), image)
        return self.head(self.dropout(state, key=key))
