"""The step of training on several devices: what JAX does, and nothing of allranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from model import CLASSES, OdeClassifier, Rows


class State(NamedTuple):
    """All that a step changes; every device has all of it."""

    weights: Any  # the arrays of an OdeClassifier
    moments: optax.OptState
    step: Array


Step = Callable[[State, Rows, Array], tuple[State, Array]]


def initial_state(args: Any, mesh: Mesh, key: Array) -> State:
    """Return the state at step 0. Each process makes its own copy; that all are equal follows from ``key`` alone."""
    weights = eqx.filter(OdeClassifier(args.hidden, args.dropout, key=key), eqx.is_array)
    state = State(weights, optax.adam(args.lr).init(weights), jnp.zeros((), jnp.int32))
    if args.pmap:
        return state
    everywhere = NamedSharding(mesh, P())
    return jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(everywhere, np.asarray(leaf)), state)


def make_step(args: Any, mesh: Mesh) -> Step:
    """Return the step, which takes rows and dropout keys that are cut over the devices.

    It is written for one device, as it was for pmap, and mapped by shard_map: that maps global arrays, whose sharding
    says who holds what, so that anything can check them. ``--pmap`` maps it as it was: arrays of this process alone,
    with an axis more for its devices, whatever the others have.
    """
    _, static = eqx.partition(OdeClassifier(args.hidden, args.dropout, key=jax.random.key(0)), eqx.is_array)

    def device_step(state: State, rows: Rows, keys: Array) -> tuple[State, Array]:
        key = jax.random.fold_in(jax.random.wrap_key_data(keys.reshape(-1)), state.step)
        samples = jax.lax.psum(rows.mask.sum(), "devices")

        def loss_of(weights: Any) -> Array:
            logits = jax.vmap(eqx.combine(weights, static))(rows.image, jax.random.split(key, len(rows.image)))
            losses = optax.losses.sigmoid_focal_loss(logits, jax.nn.one_hot(rows.label, CLASSES), alpha=0.8, gamma=2.0)
            return (losses.sum(-1) * rows.mask).sum() / samples  # masked rows count nowhere, whoever has them

        loss, grads = jax.value_and_grad(loss_of)(state.weights)
        loss = eqx.error_if(loss, ~jnp.isfinite(loss), "the loss is not finite on a device: look at its rows")
        loss, grads = jax.lax.psum((loss, grads), "devices")
        updates, moments = optax.adam(args.lr).update(grads, state.moments, state.weights)
        return State(optax.apply_updates(state.weights, updates), moments, state.step + 1), loss

    if args.pmap:
        return jax.pmap(device_step, axis_name="devices", in_axes=(None, 0, 0), out_axes=None)
    cut = P("devices")
    mapped = jax.shard_map(device_step, mesh=mesh, in_specs=(P(), cut, cut), out_specs=P(), check_vma=False)
    return jax.jit(mapped)


def local_keys(key: Array, rank: int) -> Array:
    """Return a dropout key for each device of this process, which no device of another has."""
    return jax.random.split(jax.random.fold_in(key, rank), jax.local_device_count())


def for_devices(columns: Any, args: Any, mesh: Mesh) -> Any:
    """Return this process' rows or keys as the step takes them: with an axis for its devices, or as global arrays."""
    if args.pmap:
        devices = jax.local_device_count()
        return jax.tree.map(lambda column: column.reshape(devices, -1, *column.shape[1:]), columns)
    cut = NamedSharding(mesh, P("devices"))
    return jax.tree.map(lambda column: jax.make_array_from_process_local_data(cut, np.asarray(column)), columns)
