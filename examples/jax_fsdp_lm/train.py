"""Train a transformer on the Python standard library, its weights and optimizer state sharded over every device.

allranks run -n 4 -d 2 examples/jax_fsdp_lm/train.py --demo
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice, repeat
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from model import Transformer, generate, mean_loss
from text import Text, batches_of
from tqdm import tqdm

import allranks
from report import Progress, Record, header, quoted, read_once

# Sizes that divide over 4 ranks and over 3, with 2 devices each.
DEMO = {
    "size": 144,
    "layers": 3,
    "heads": 4,
    "seq_len": 64,
    "batch_size": 48,
    "grad_accum": 2,
    "steps": 200,
    "lr": 1e-2,
    "save_every": 50,
    "sample_every": 100,
}


class State(NamedTuple):
    """All that a step changes, and so all that a checkpoint holds."""

    model: Transformer
    moments: optax.OptState


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=512, help="width of the model (d_model)")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--seq-len", type=int, default=512, help="bytes of context")
    parser.add_argument("--batch-size", type=int, default=64, help="rows of the global batch, over all ranks")
    parser.add_argument("--grad-accum", type=int, default=1, help="micro-batches a step")
    parser.add_argument("--fsdp", action=argparse.BooleanOptionalAction, default=True, help="shard weights and moments")
    parser.add_argument("--prefetch", type=int, default=4, help="batches read ahead")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of the computation")
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--sample-every", type=int, default=200)
    parser.add_argument("--checkpoint", metavar="RUN", help="save into this directory, and go on from its newest step")
    parser.add_argument("--save-every", type=int, default=500)
    parser.add_argument("--losses", metavar="FILE", help="write the loss of every step there, a line of JSON each")
    parser.add_argument("--demo", action="store_true", help="a small model: under three minutes on two cores")
    if parser.parse_known_args(argv)[0].demo:
        parser.set_defaults(**DEMO)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None, *, storage: Any = None) -> list[float]:
    """Train as the command line says; return the loss of every step. ``storage`` stands for ``--checkpoint``."""
    world = allranks.init()
    args = arguments(argv)
    mesh = Mesh(np.array(jax.devices()), ("data",))
    plan = allranks.BatchPlan(
        args.batch_size, ranks=world.size, devices=jax.local_device_count(), accumulation=args.grad_accum
    )
    text = Text.of_standard_library(args.seq_len + 1)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(optax.warmup_cosine_decay_schedule(0.0, args.lr, args.steps // 10, args.steps), b2=0.95),
    )
    state = initial_state(args, mesh, optimizer)
    train_step = make_train_step(args, mesh, plan, optimizer, state)
    sample = make_sample(args, mesh)

    def say(text: str) -> None:
        if world.is_main:
            tqdm.write(text)

    say(header(args, world, mesh, plan, text, state))
    losses: list[Array] = []
    with ExitStack() as open_until_the_end:
        start, restored, maybe_save = 0, None, None
        if storage or args.checkpoint:
            ckpt = allranks.Checkpointer(storage or args.checkpoint, world, every=args.save_every, keep_last=3)
            maybe_save = open_until_the_end.enter_context(ckpt).maybe_save
            restored = ckpt.restore(like=state)
            state, start = restored or (state, 0)
            say(f"goes on from step {start}, saves every {args.save_every}\n")
        loader = batches_of(text, plan.size, seed=args.seed).loader(
            world,
            rows=(mesh, "data"),  # each rank reads what its devices hold
            prefetch=args.prefetch,
            state=restored.extra["data"] if restored else None,  # of any number of ranks
        )
        open_until_the_end.callback(loader.close)
        record = Record(args.losses if world.is_main else None, first=start)
        progress = Progress(first=start, bytes_a_step=plan.size * args.seq_len)
        bar = tqdm(total=args.steps, initial=start, unit="step", leave=False, disable=not world.is_main)
        open_until_the_end.enter_context(bar)
        epochs = chain.from_iterable(repeat(loader))  # one after the other, each proven at its end
        for step, batch in enumerate(islice(epochs, args.steps - start), start=start + 1):
            state, loss = train_step(state, batch.to_jax((mesh, "data"))["tokens"])
            losses.append(loss)
            # One step runs while the next is prepared, and no more: a host far ahead of its devices only hides where
            # the time goes, and starves XLA's CPU threads.
            losses[-2:][0].block_until_ready()
            bar.update()
            # What every rank has to compute stands outside of `if world.is_main`; only saying it is for one.
            record.write(losses[:-1])
            if step == start + 1 or step % args.log_every == 0:
                say(progress.line(losses))
            if step % args.sample_every == 0:
                with progress.paused():
                    say(quoted(sample(state.model, step)[0]))
            if maybe_save:
                maybe_save(step, state, metrics={"loss": loss}, extra={"data": loader.state()})
        record.write(losses)
        taken = loader.audit()
    digest = allranks.tree_digest(state.model, world)
    say(progress.summary(losses))
    say(f"data     {read_once(loader, taken, text, world)}")
    say(f"weights  {digest}, by agreement of {world.size} ranks")
    return [float(loss) for loss in losses]


def fsdp_specs(tree: Any, devices: int, *, fsdp: bool) -> Any:
    """Return how each leaf is split: those whose first dimension divides by the devices along it, the rest not."""

    def split(leaf: Any) -> P:
        divides = leaf.ndim > 0 and leaf.shape[0] % devices == 0
        return P("data") if fsdp and divides else P()

    return jax.tree.map(split, tree)


def initial_state(args: argparse.Namespace, mesh: Mesh, optimizer: optax.GradientTransformation) -> State:
    """Return the state at step 0. Each device makes its own shards; the whole exists nowhere."""

    def make(key: Array) -> State:
        model = Transformer(size=args.size, layers=args.layers, heads=args.heads, context=args.seq_len, key=key)
        return State(model, optimizer.init(model))

    key = jax.random.key(args.seed)
    specs = fsdp_specs(jax.eval_shape(make, key), mesh.size, fsdp=args.fsdp)
    return jax.jit(make, out_shardings=jax.tree.map(partial(NamedSharding, mesh), specs))(key)


def make_train_step(
    args: argparse.Namespace,
    mesh: Mesh,
    plan: allranks.BatchPlan,
    optimizer: optax.GradientTransformation,
    state: State,
) -> Callable[[State, Array], tuple[State, Array]]:
    """Return the step: gather the weights, add up the gradients of the micro-batches, update the shards."""
    specs = jax.tree.map(lambda leaf: leaf.sharding.spec, state.model)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state)

    @partial(jax.shard_map, mesh=mesh, in_specs=(specs, P("data")), out_specs=(P(), specs))
    def loss_and_grads(shards: Transformer, rows: Array) -> tuple[Array, Transformer]:
        """On one device: its shards of the weights and its rows -> the loss of all, its shards of the gradients."""
        model = jax.tree.map(partial(gather, dtype=args.dtype), shards, specs)

        def micro_step(total: tuple[Array, Transformer], rows: Array) -> tuple[tuple[Array, Transformer], None]:
            return jax.tree.map(jnp.add, total, jax.value_and_grad(mean_loss)(model, rows)), None

        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), (jnp.zeros(()), model))
        micro_batches = rows.reshape(plan.accumulation, plan.rows_at_once, -1)
        total, _ = jax.lax.scan(micro_step, jax.lax.pcast(zeros, "data", to="varying"), micro_batches)
        loss, grads = jax.tree.map(lambda total: total / (plan.accumulation * mesh.size), total)
        return jax.lax.psum(loss, "data"), jax.tree.map(scatter_sum, grads, specs)

    @partial(jax.jit, donate_argnums=0, out_shardings=(shardings, NamedSharding(mesh, P())))
    def train_step(state: State, rows: Array) -> tuple[State, Array]:
        loss, grads = loss_and_grads(state.model, rows)
        updates, moments = optimizer.update(grads, state.moments, state.model)
        return State(optax.apply_updates(state.model, updates), moments), loss

    return train_step


def make_sample(args: argparse.Namespace, mesh: Mesh) -> Callable[[Transformer, int], Array]:
    """Return a function that every rank must call: each device writes one text, and every rank gets them all."""
    whole, one_each = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))

    @partial(jax.jit, out_shardings=whole)
    def sample(model: Transformer, seed: int) -> Array:
        model = jax.lax.with_sharding_constraint(jax.tree.map(lambda leaf: leaf.astype(args.dtype), model), whole)
        prompt = jnp.frombuffer(b"def ", jnp.uint8)
        keys = jax.lax.with_sharding_constraint(jax.random.split(jax.random.key(seed), mesh.size), one_each)
        return jax.vmap(lambda key: generate(model, prompt, key, length=240))(keys)

    return sample


def gather(shard: Array, spec: P, *, dtype: str) -> Array:
    """Return the whole leaf, on every device, in the dtype of the computation."""
    shard = shard.astype(dtype)
    if spec == P("data"):
        return jax.lax.all_gather(shard, "data", tiled=True)
    return jax.lax.pcast(shard, "data", to="varying")


def scatter_sum(grad: Array, spec: P) -> Array:
    """Return the sum over the devices of a whole leaf's gradients: of a sharded leaf, only this device's part."""
    if spec == P("data"):
        return jax.lax.psum_scatter(grad, "data", tiled=True)
    return jax.lax.psum(grad, "data")


if __name__ == "__main__":
    main()
