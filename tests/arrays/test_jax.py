"""Rows, shards and digests on real ranks of JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import allranks
from allranks.arrays.base import Leaf
from allranks.errors import BatchMismatch, Mismatch


def mesh_of(*axes: str, shape: tuple[int, ...] = (-1,)) -> Mesh:
    return Mesh(np.array(jax.devices()).reshape(shape), axes)


@pytest.mark.world(n=2, devices=2)
def test_rows_of_every_rank_are_in_the_batch(world: allranks.World) -> None:
    """Without us two usual calls lose rows, or mix them up, in silence; with us all are there, or all ranks raise."""
    mesh = mesh_of("data")
    cut = NamedSharding(mesh, P("data"))
    total = jax.jit(jnp.sum)
    rows = np.arange(8.0) + 8 * world.rank

    halved = jax.make_array_from_callback(rows.shape, cut, lambda index: rows[index])
    assert (halved.shape, float(total(halved))) == ((8,), 60.0)
    batch = allranks.global_batch(mesh, rows, global_rows=16)
    assert (batch.shape, float(total(batch))) == ((16,), sum(range(16)))

    uneven = rows if world.rank == 0 else rows[:4]
    believed = jax.make_array_from_process_local_data(cut, uneven).shape  # twelve rows, if the ranks knew of each other
    assert believed == ((16,) if world.rank == 0 else (8,))
    with pytest.raises(BatchMismatch, match=r"rank 0: rows int64\[8\]; rank 1: rows int64\[4\]"):
        allranks.global_batch(mesh, uneven.astype(int))


@pytest.mark.world(n=2, devices=1)
def test_a_batch_that_shrinks_on_one_rank_is_refused_there(world: allranks.World) -> None:
    """No rank waits for others that have compared these rows before; and a last batch that all announce is let in."""
    mesh = mesh_of("data")
    rows = np.arange(8) + 8 * world.rank
    allranks.global_batch(mesh, rows)
    with pytest.raises(BatchMismatch, match=rf"rank {world.rank}: .* a batch of 8: expected 16, as before"):
        allranks.global_batch(mesh, rows[:4])
    assert allranks.global_batch(mesh, rows[:4], global_rows=8).shape == (8,)
    assert allranks.global_batch(mesh, rows).shape == (16,)


@pytest.mark.world(n=2, devices=2)
def test_one_data_set_read_by_every_rank_is_refused(world: allranks.World) -> None:
    """Every rank bringing the whole batch doubles it in silence; that, and constant rows, are told apart."""
    mesh = mesh_of("data")
    everything = {"x": np.arange(16.0).reshape(8, 2)}
    with pytest.raises(BatchMismatch, match="ranks 0-1 have byte-identical rows for different parts"):
        allranks.global_batch(mesh, everything)
    with pytest.raises(BatchMismatch, match=rf"rank {world.rank}: .* pass only this rank's own 4 rows\."):
        allranks.global_batch(mesh, everything, global_rows=8)
    assert allranks.global_batch(mesh, {"x": np.zeros((8, 2))})["x"].shape == (16, 2)


@pytest.mark.world(n=4, devices=1)
def test_ranks_along_another_axis_bring_the_same_rows(world: allranks.World) -> None:
    """Two ways data x two ways model: ranks 0-1 hold one half of the batch, ranks 2-3 the other."""
    mesh = mesh_of("data", "model", shape=(2, 2))
    half = np.arange(4) + 4 * (world.rank // 2)
    with pytest.raises(BatchMismatch, match=r"several axes: data, model\. Pass the axes"):
        allranks.global_batch(mesh, half)
    batch = allranks.global_batch(mesh, half, axis="data", global_rows=8)
    assert int(jax.jit(jnp.sum)(batch)) == sum(range(8))
    with pytest.raises(BatchMismatch, match="ranks 0-1 hold the same part of the batch, but have different bytes"):
        allranks.global_batch(mesh, (half + world.rank).astype(np.int16), axis="data")


@pytest.mark.world(n=4, devices=2)
def test_a_digest_covers_all_shards_and_names_the_odd_replica(world: allranks.World) -> None:
    """Sharded, partly and wholly replicated leaves; then rank 2 holds other bytes in a leaf that says it is replicated.

    JAX's own assertion on such an array passes: it compares what the array claims to be. On another mesh, and on
    another number of ranks, the digest is the same.
    """
    mesh = mesh_of("copy", "shard", shape=(4, 2))

    def place(spec: P, array: np.ndarray, *, odd: bool = False, on: Mesh = mesh) -> jax.Array:
        mine = array + (odd and world.rank == 2)
        return jax.make_array_from_callback(array.shape, NamedSharding(on, spec), lambda index: mine[index])

    values = np.arange(16.0, dtype=np.float32).reshape(8, 2)
    tree = {
        "cut": place(P(("copy", "shard")), values),
        "half": place(P("shard"), values),
        "whole": place(P(), values),
        "host": values,
        "key": jax.random.key(7),
    }
    alone = dict.fromkeys(["cut", "half", "whole", "host"], values) | {"key": jax.random.key(7)}
    digest = allranks.tree_digest(tree, world)
    assert world.agree(digest) == digest
    assert allranks.tree_digest(tree | {"cut": place(P(("copy", "shard")), values + 1)}, world) != digest

    specs = {"cut": P("shard"), "half": P(), "whole": P(("shard", "copy"))}
    others = {name: place(spec, values, on=mesh_of("copy", "shard", shape=(2, 4))) for name, spec in specs.items()}
    assert allranks.tree_digest(tree | others, world) == digest
    assert allranks.SimulatedWorld(3).run(lambda one: allranks.tree_digest(alone, one)).values() == (digest,) * 3

    for spec in (P(), P("shard")):
        with pytest.raises(Mismatch, match=r"leaf 'odd/0'.* on rank 2 against") as caught:
            allranks.tree_digest({**tree, "odd": [place(spec, values, odd=True)]}, world)
        assert caught.value.ranks == (2,)
    with pytest.raises(Mismatch, match=r"leaf 'host', .* on rank 2 against ranks 0-1, 3"):
        allranks.tree_digest({**tree, "host": values + (world.rank == 2)}, world)


@pytest.mark.world(n=1, devices=4)
def test_leaves_say_how_they_are_split() -> None:
    """Pieces along each dimension, and what one device holds; in a world of one, before init(), no other is asked."""
    mesh = mesh_of("a", "b", shape=(2, 2))
    both = jax.device_put(jnp.zeros((8, 6), jnp.bfloat16), NamedSharding(mesh, P("a", "b")))
    none = jax.device_put(jnp.zeros(3), NamedSharding(mesh, P()))
    first, second, third = allranks.describe({"both": both, "none": none, "np": np.zeros((2, 0)), "name": "no array"})
    assert first == Leaf("both", (8, 6), "bfloat16", pieces=(2, 2), device_bytes=24)
    assert (first.is_sharded, first.size, first.nbytes) == (True, 48, 96)
    assert (second.pieces, second.device_bytes, second.is_sharded) == ((1,), 12, False)
    assert (third.path, third.nbytes) == ("np", 0)
    assert allranks.global_batch(mesh, np.arange(8), axis=("a", "b")).shape == (8,)
    with pytest.raises(BatchMismatch, match="rank 0: global_batch: 6 rows cannot be divided over the 4 parts"):
        allranks.global_batch(mesh, np.arange(6), axis=("a", "b"))
