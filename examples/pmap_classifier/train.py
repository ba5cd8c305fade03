"""Train a classifier of digits on several devices of one process, or of several.

allranks run -n 1 -d 2 examples/pmap_classifier/train.py
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain, islice, repeat

import broken
import jax
import numpy as np
from jax.sharding import Mesh
from model import Rows
from step import for_devices, initial_state, make_step

import allranks


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hidden", type=int, default=32, help="features of the state")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--batch-size", type=int, default=64, help="rows of the global batch, over all devices")
    parser.add_argument("--rows", type=int, help="of the data; all of them, if not given")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=20)
    parser.add_argument("--pmap", action="store_true", help="map the step by jax.pmap, as it was, not by shard_map")
    parser.add_argument("--break", dest="bug", choices=broken.BUGS, help="put in one of the bugs of broken.py")
    parser.add_argument("--without-allranks", action="store_true", help="the program as it was before, in broken.py")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> list[float]:
    """Train as the command line says; return the loss of every step."""
    args = arguments(argv)
    if args.without_allranks:
        return broken.train(args)
    world = allranks.init()
    mesh = Mesh(np.array(jax.devices()), ("devices",))
    key, dropout_keys = broken.keys_of(args, world.rank)
    allranks.preflight(
        world,
        batch=args.batch_size,
        same={"flags": args, "key of the weights": key},
        distinct={"dropout keys": dropout_keys},
    )
    state = initial_state(args, mesh, key)
    step = allranks.lockstep(make_step(args, mesh))
    keys = for_devices(np.asarray(jax.random.key_data(dropout_keys)), args, mesh)
    losses: list[float] = []
    for number, rows in enumerate(islice(batches(args, mesh, world), args.steps), start=1):
        rows = broken.spoiled(args, rows, number, world.rank)
        state, loss = step(state, for_devices(rows, args, mesh), keys)
        losses.append(float(loss))
        if number % args.log_every == 0:
            allranks.print(f"step {number:4}   loss {np.mean(losses[-args.log_every :]):.4f}")
    digest = allranks.tree_digest(state.weights, world)
    allranks.print(f"weights {digest}, by agreement of {mesh.size} devices")
    return losses


def batches(args: argparse.Namespace, mesh: Mesh, world: allranks.World) -> Iterator[Rows]:
    """Yield this process' rows of every batch, one epoch after the other. The last of an epoch is filled up, masked."""
    if args.bug == "uneven":
        yield from broken.batches(args, world.rank, world.size)
        return
    data = allranks.Dataset.sequence(broken.digits(args.rows), seed=args.seed).batch(args.batch_size)
    with closing(data.loader(world, rows=(mesh, "devices"))) as loader:
        for batch in chain.from_iterable(repeat(loader)):
            yield Rows(batch["image"], batch["label"], batch.mask)


if __name__ == "__main__":
    main()
