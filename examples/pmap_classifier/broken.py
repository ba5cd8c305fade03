"""The program as it was before, with nothing of allranks in it, and the bugs that its author had, or could have had.

Bugs that `allranks check` finds by reading have a comment with its code, so that it is quiet about this file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh
from model import Rows
from sklearn.datasets import load_digits
from step import for_devices, initial_state, local_keys, make_step

BUGS = ("seed", "keys", "uneven", "slow", "device")
AT_STEP = 2  # where a device meets the row that it cannot digest
DEAD_PIXEL = 1e7  # the pace of the ODE follows it, and the number of the solver's steps


def train(args: Any) -> list[float]:
    """Train, as ``--break`` says; return the loss of every step."""
    if os.environ.get("WORLD_SIZE", "1") != "1":
        jax.distributed.initialize()
    mesh = Mesh(np.array(jax.devices()), ("devices",))
    key, dropout_keys = keys_of(args, jax.process_index())
    state, step = initial_state(args, mesh, key), make_step(args, mesh)
    keys = for_devices(np.asarray(jax.random.key_data(dropout_keys)), args, mesh)
    losses: list[float] = []
    for rows in batches(args, jax.process_index(), jax.process_count()):
        state, loss = step(state, for_devices(rows, args, mesh), keys)
        losses.append(float(loss))
        if jax.process_index() == 0:
            print(f"step {len(losses):4}   loss {losses[-1]:.4f}", flush=True)
        if len(losses) == args.steps:
            break
    norm = sum(float(np.square(leaf.addressable_data(0)).sum()) for leaf in jax.tree.leaves(state.weights)) ** 0.5
    print(f"norm of the weights {norm:.6f}, first dropout key {jax.random.key_data(dropout_keys)[0]}", flush=True)
    return losses


def keys_of(args: Any, rank: int) -> tuple[Array, Array]:
    """Return the key of the weights and those of dropout on this process' devices."""
    seed = time.time_ns() % 2**31 if args.bug == "seed" else args.seed
    # allranks: ignore[AR702] where the seed is the time of day, every process has another
    weights, dropout = jax.random.split(jax.random.key(seed))
    if args.bug == "keys":  # as proposed: a key for each device
        # allranks: ignore[AR701] of several processes all have the same
        return weights, jax.random.split(dropout, jax.local_device_count())
    return weights, local_keys(dropout, rank)


def spoiled(args: Any, rows: Rows, step: int, rank: int) -> Rows:
    """Return the rows, of which one is what a device cannot digest, if ``--break`` says so."""
    if step != AT_STEP or rank or args.bug not in ("slow", "device"):
        return rows
    image = rows.image.copy()
    image[-1, 3, 3] = DEAD_PIXEL if args.bug == "slow" else np.nan
    return rows._replace(image=image)


def digits(many: int | None = None) -> list[dict[str, Any]]:
    """Return scikit-learn's 1,797 digits, or the first so many."""
    data = load_digits()
    return [
        {"image": image.astype(np.float32) / 16, "label": np.int32(label)}
        for image, label in zip(data.images[:many], data.target[:many], strict=True)
    ]


def batches(args: Any, rank: int, size: int) -> Iterator[Rows]:
    """Yield this process' rows of every batch, in the order of the files; a smaller last one with ``uneven`` only."""
    mine = digits(args.rows)[rank::size]
    many = args.batch_size // size
    ends = len(mine) if args.bug == "uneven" else len(mine) // many * many
    for step, start in enumerate(range(0, ends, many), start=1):
        part = mine[start : start + many]
        rows = Rows(
            np.stack([row["image"] for row in part]), np.stack([row["label"] for row in part]), np.ones(len(part), bool)
        )
        yield spoiled(args, rows, step, rank)
