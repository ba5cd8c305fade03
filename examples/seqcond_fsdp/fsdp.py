"""The step of training, its weights and moments cut over all devices: what JAX does, and nothing of allranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from seqcond import LanguageModel, generate, language_model

from jax_fsdp_lm.model import mean_loss


class State(NamedTuple):
    """All that a step changes, and so all that a checkpoint holds."""

    model: LanguageModel
    moments: optax.OptState


def optimizer(args: Any) -> optax.GradientTransformation:
    """Return AdamW behind a short warmup. Nothing in it depends on how long the run is: it can be made longer."""
    return optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(optax.linear_schedule(0.0, args.lr, args.warmup), b2=0.95)
    )


def initial_state(args: Any, mesh: Mesh) -> State:
    """Return the state at step 0. Each device makes its own shards; the whole exists nowhere.

    With ``--fsdp`` leaves are cut along their first dimension, if all devices divide it, and are replicated otherwise.
    """

    def make() -> State:
        model = language_model(args, key=jax.random.key(args.seed))
        return State(model, optimizer(args).init(model))

    def cut(leaf: Any) -> NamedSharding:
        divides = leaf.ndim > 0 and leaf.shape[0] % mesh.size == 0
        return NamedSharding(mesh, P("data") if args.fsdp and divides else P())

    return jax.jit(make, out_shardings=jax.tree.map(cut, jax.eval_shape(make)))()


def make_train_step(args: Any, mesh: Mesh, state: State) -> Callable[[State, Array], tuple[State, Array]]:
    """Return the step: all weights are gathered, the gradients of the micro-batches added up, the shards updated.

    Rows [batch, bytes + 1] are cut over the devices. The compiler puts the collectives in: they follow from where the
    arrays lie before and after. (``jax_fsdp_lm`` writes them out, with shard_map.)
    """
    whole = NamedSharding(mesh, P())
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state)

    @partial(jax.jit, donate_argnums=0, out_shardings=(shardings, whole))
    def train_step(state: State, rows: Array) -> tuple[State, Array]:
        model = jax.lax.with_sharding_constraint(state.model, whole)

        def micro_step(total: tuple[Array, Any], rows: Array) -> tuple[tuple[Array, Any], None]:
            return jax.tree.map(jnp.add, total, jax.value_and_grad(mean_loss)(model, rows)), None

        zeros = jax.tree.map(jnp.zeros_like, (jnp.zeros(()), model))
        total, _ = jax.lax.scan(micro_step, zeros, micro_batches(rows, args.grad_accum_steps, mesh))
        loss, grads = jax.tree.map(lambda total: total / args.grad_accum_steps, total)
        updates, moments = optimizer(args).update(grads, state.moments, state.model)
        return State(optax.apply_updates(state.model, updates), moments), loss

    return train_step


def micro_batches(rows: Array, many: int, mesh: Mesh) -> Array:
    """Return rows [batch, ...] as [many, batch / many, ...]. Each device cuts its own rows: none of them travels."""
    of_devices = rows.reshape(mesh.size, many, -1, rows.shape[-1]).swapaxes(0, 1)
    cut = NamedSharding(mesh, P(None, "data"))
    return jax.lax.with_sharding_constraint(of_devices.reshape(many, -1, rows.shape[-1]), cut)


def make_sample(args: Any, mesh: Mesh) -> Callable[[LanguageModel, int], Array]:
    """Return a function that **every rank must call**: it gathers the weights, and every rank gets the text."""
    whole = NamedSharding(mesh, P())

    @partial(jax.jit, out_shardings=whole)
    def sample(model: LanguageModel, seed: int) -> Array:
        model = jax.lax.with_sharding_constraint(model, whole)
        return generate(model, jnp.frombuffer(b"def ", jnp.uint8), jax.random.key(seed), length=args.sample_length)

    return sample
