"""The program as it was before, with nothing of allranks in it, and the bugs that its authors found or made.

Bugs that `allranks check` finds by reading have a comment with its code, so that it is quiet about this file.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
from fsdp import initial_state, make_sample, make_train_step
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_fsdp_lm.text import Text, readable

DATA_BUGS = ("generator", "uneven", "local-rows")
BUGS = ("save-race", "gate", *DATA_BUGS)
EPOCH = 8  # steps, of the streams below
REFUSED = 5  # the row with which the tokenizer cannot do anything: rank 1's, of four


def train(args: Any) -> list[float]:
    """Train, as ``--break`` says; return the loss of every step."""
    jax.distributed.initialize()
    mesh = Mesh(np.array(jax.devices()), ("data",))
    text = Text.of_standard_library(args.seq_len + 1)
    state = initial_state(args, mesh)
    train_step, sample = make_train_step(args, mesh, state), make_sample(args, mesh)
    losses: list[float] = []
    for step, rows in enumerate(islice(batches_of(args, text, mesh), args.steps), start=1):
        state, loss = train_step(state, rows)
        losses.append(float(loss))
        if jax.process_index() == 0 and step % args.log_every == 0:
            print(f"step {step:5}   loss {np.mean(losses[-args.log_every :]):.3f}   of {len(rows)} rows", flush=True)
        if step % args.sample_every == 0:
            show_sample(args, sample, state.model, step)
        if step % args.save_every == 0:
            save(args, state.model, step)
    if jax.process_index() == 0:
        print(f"trained {len(losses)} steps", flush=True)
    return losses


def show_sample(args: Any, sample: Callable[[Any, int], Array], model: Any, step: int) -> None:
    """As proposed: only process 0 generates. But all hold the weights, and all must take part."""
    if args.bug == "gate" and jax.process_index() != 0:
        return
    # allranks: ignore[AR204] the others wait for it
    written = sample(model, step)
    if jax.process_index() == 0:
        print(readable(written.tolist()), flush=True)


def save(args: Any, model: Any, step: int) -> None:
    """As it was: every process writes what its first device holds, all into one file."""
    path = Path(f"{args.checkpoint}_step{step}.pkl")
    path.parent.mkdir(parents=True, exist_ok=True)
    leaves, _ = jax.tree_util.tree_flatten_with_path(model)
    names = [jax.tree_util.keystr(name, simple=True, separator="/") for name, _ in leaves]
    # allranks: ignore[AR403] one part of several: (64, 32) of (256, 32)
    params = [np.asarray(leaf.addressable_data(0)) for _, leaf in leaves]
    with open(path, "wb") as file:
        # allranks: ignore[AR101] the last one wins, if they do not tear it
        pickle.dump({"params": dict(zip(names, params, strict=True)), "step": step}, file)


def batches_of(args: Any, text: Text, mesh: Mesh) -> Iterator[Array]:
    """Yield the global batches of ``--break``, or right ones: as it was, every process reads all rows of all."""
    rank, size = jax.process_index(), jax.process_count()
    if args.bug == "generator":
        yield from batches(args, iterate(args, text, rank, size), mesh, size)
    elif args.bug in DATA_BUGS:
        yield from batches(args, iterate_sharded(args, text, rank, size), mesh, size)
    else:
        order = np.random.default_rng(args.seed).permutation(len(text))
        for step in count():
            rows = np.stack([text[n] for n in order[step * args.batch_size : (step + 1) * args.batch_size]])
            yield as_global(rows, mesh)


def iterate_sharded(args: Any, text: Text, rank: int, size: int) -> Iterator[np.ndarray]:
    """As proposed: every process takes every N-th row. A row that cannot be used is skipped, by one."""
    for number in range(EPOCH * args.batch_size):
        if number % size != rank:
            continue
        if args.bug == "uneven" and number == REFUSED:
            continue
        yield text[number]


def iterate(args: Any, text: Text, rank: int, size: int) -> Iterator[np.ndarray]:
    """As proposed: in a function that yields, ``return`` ends the data before its first row."""
    if size > 1:
        # allranks: ignore[AR309] nobody ever sees it
        return iterate_sharded(args, text, rank, size)
    for number in range(EPOCH * args.batch_size):
        yield text[number]
    return None


def batches(args: Any, rows: Iterable[np.ndarray], mesh: Mesh, size: int) -> Iterator[Array]:
    """Yield global batches of this process' rows."""
    mine, many = iter(rows), args.batch_size // size
    while len(local := list(islice(mine, many))) == many:
        if args.bug == "local-rows":
            yield as_global(np.stack(local), mesh)  # as before: but now these rows are its own, and no longer all
        else:
            yield jax.make_array_from_process_local_data(NamedSharding(mesh, P("data")), np.stack(local))


def as_global(rows: np.ndarray, mesh: Mesh) -> Array:
    """Return rows that every process has as one array: each device takes its slice of them."""
    return jax.make_array_from_callback(rows.shape, NamedSharding(mesh, P("data")), lambda index: rows[index])
