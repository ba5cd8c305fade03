"""Train a language model, cut over all devices of all ranks, on the Python standard library.

allranks run -n 4 examples/seqcond_fsdp/train.py --size tiny --fsdp
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, islice, repeat
from typing import Any

import broken
import jax
import numpy as np
from fsdp import State, initial_state, make_sample, make_train_step
from jax import Array
from jax.sharding import Mesh
from seqcond import SIZES

import allranks
from jax_fsdp_lm.text import Text, batches_of, readable


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=("seqcond", "transformer"), default="seqcond")
    parser.add_argument("--size", choices=tuple(SIZES), default="small", help="width, and layers where not given")
    parser.add_argument("--num-layers", type=int)
    parser.add_argument("--expand", type=float, default=2.0, help="inner width of a seqcond block, by the model's")
    parser.add_argument("--seqcond-heads", type=int, default=8, help="summaries of a block")
    parser.add_argument("--seqcond-query-heads", type=int, help="gates that read them (default: one each)")
    parser.add_argument("--heads", type=int, default=8, help="of the transformer")
    parser.add_argument("--seq-len", type=int, default=256, help="bytes of context")
    parser.add_argument("--batch-size", type=int, default=64, help="rows of the global batch, over all ranks")
    parser.add_argument("--grad-accum-steps", type=int, default=1, help="micro-batches a step")
    parser.add_argument("--prefetch-batches", type=int, default=4, help="batches read ahead")
    parser.add_argument("--fsdp", action="store_true", help="cut weights and moments over the devices")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--warmup", type=int, default=10, help="steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--sample-every", type=int, default=200)
    parser.add_argument("--sample-length", type=int, default=160)
    parser.add_argument("--checkpoint", metavar="RUN", default="runs/seqcond", help="goes on from its newest step")
    parser.add_argument("--from-step", type=int, help="goes on from this one")
    parser.add_argument("--save-every", type=int, default=200)
    parser.add_argument("--init-from", metavar="FILE", help="begin with weights that somebody else has saved")
    parser.add_argument("--break", dest="bug", choices=broken.BUGS, help="put in one of the bugs of broken.py")
    parser.add_argument("--without-allranks", action="store_true", help="the program as it was before, in broken.py")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> list[float]:
    """Train as the command line says; return the loss of every step."""
    args = arguments(argv)
    if args.without_allranks:
        return broken.train(args)
    world = allranks.init()
    mesh = Mesh(np.array(jax.devices()), ("data",))
    plan = allranks.BatchPlan(
        args.batch_size, ranks=world.size, devices=jax.local_device_count(), accumulation=args.grad_accum_steps
    )
    text = Text.of_standard_library(args.seq_len + 1)
    state = initial_state(args, mesh)
    train_step = allranks.lockstep(make_train_step(args, mesh, state))
    sample = allranks.lockstep(make_sample(args, mesh))
    losses: list[float] = []
    with ExitStack() as until_the_end:
        ckpt = until_the_end.enter_context(allranks.Checkpointer(args.checkpoint, world, every=args.save_every))
        restored = ckpt.restore(like=state, step=args.from_step)
        state, start = restored or (state, 0)
        if args.init_from:  # pickle, since the checkpoints of this model once were; it runs the code in them
            state = state._replace(model=allranks.load(args.init_from, into=state.model, allow_pickle=True).state)
        loader = batches_of(text, plan.size, seed=args.seed).loader(
            world,
            rows=(mesh, "data"),  # each rank reads what its devices hold
            prefetch=args.prefetch_batches,
            state=restored.extra["data"] if restored else None,  # of any number of ranks
        )
        until_the_end.callback(loader.close)
        until_the_end.enter_context(allranks.lockstep())
        ahead = wrong_batches(args, text, mesh, world) if args.bug in broken.DATA_BUGS else right_batches(loader, mesh)
        for step, rows in enumerate(islice(ahead, args.steps - start), start=start + 1):
            if step == start + 1:
                allranks.preflight(world, batch=plan, data=rows, same={"flags": args})
                weights = sum(leaf.size for leaf in allranks.describe(state.model))
                allranks.print(f"{args.model}: {weights:,} weights; batch: {plan}; begins at step {step}")
            state, loss = train_step(state, rows)
            losses.append(float(loss))
            if step % args.log_every == 0:
                allranks.print(f"step {step:5}   loss {np.mean(losses[-args.log_every :]):.3f}")
            if step % args.sample_every == 0:
                say_sample(args, world, sample, state, step)
            if args.bug == "save-race" and step % args.save_every == 0:
                broken.save(args, state.model, step)
            ckpt.maybe_save(step, state, metrics={"loss": losses[-1]}, extra={"data": loader.state()})
    allranks.print(f"weights {allranks.tree_digest(state.model, world)}, by agreement of {world.size} ranks")
    return losses


def right_batches(loader: allranks.data.loader.Loader, mesh: Mesh) -> Iterator[Array]:
    """Yield the batches of one epoch after the other, each rank bringing what its devices hold."""
    return (batch.to_jax((mesh, "data"))["tokens"] for batch in chain.from_iterable(repeat(loader)))


def say_sample(
    args: argparse.Namespace, world: allranks.World, sample: Callable[[Any, int], Array], state: State, step: int
) -> None:
    """Have all ranks make a sample, which one says; with ``--break gate``, have only that one make it."""
    if args.bug == "gate" and not world.is_main:
        return
    allranks.print(readable(sample(state.model, step).tolist()))


def wrong_batches(args: argparse.Namespace, text: Text, mesh: Mesh, world: allranks.World) -> Iterator[Array]:
    """Yield the batches of ``--break``, as ours meets them: a stream goes through ``shard``."""
    if args.bug == "generator":
        rows = allranks.shard(broken.iterate(args, text, world.rank, world.size), world)
        return broken.batches(args, rows, mesh, world.size)
    return broken.batches(args, broken.iterate_sharded(args, text, world.rank, world.size), mesh, world.size)


if __name__ == "__main__":
    main()
