"""Rows belong to the sharding: what passes without an error today, and is wrong, with us is right or an error."""

from __future__ import annotations

import threading
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from samples import plan_of

import allranks
from allranks.data.dataset import Dataset
from allranks.data.detect import rows_of_process
from allranks.data.device_iterator import place_ahead
from allranks.data.jax import to_jax
from allranks.data.plan import rows_of_rank
from allranks.data.start import compare_shared_rows, row_hashes, start_on_all_ranks
from allranks.errors import BatchMismatch, DataError

BATCH = 8


def mesh_of(*axes: str, shape: tuple[int, ...] = (-1,), order: list[int] | None = None) -> Mesh:
    devices = np.array(jax.devices())
    return Mesh((devices if order is None else devices[order]).reshape(shape), axes)


def columns_of(rows: Any) -> dict[str, np.ndarray]:
    """Return rows of a batch in which every element tells its row."""
    held = np.array(rows, np.int32)
    return {"tokens": held[:, None] * 10 + np.arange(4, dtype=np.int32), "label": held, "score": held / np.float32(2)}


def everywhere(array: jax.Array) -> np.ndarray:
    """Return a whole global array on every rank."""
    whole = NamedSharding(array.sharding.mesh, P())
    return np.asarray(jax.jit(lambda x: x, out_shardings=whole)(array).addressable_data(0))


def assert_is_the_batch(arrays: dict[str, Any], size: int = BATCH) -> None:
    for name, column in columns_of(range(size)).items():
        assert everywhere(arrays[name]).tolist() == column.tolist(), name


@pytest.mark.world(n=1, devices=8)
def test_one_process_places_every_row_once(world: allranks.World) -> None:
    """Rows over one axis, two, permuted or none, also where positions are cut, too; text stays on the host."""
    batch = columns_of(range(BATCH)) | {"text": np.array([f"document {row}" for row in range(BATCH)], object)}
    straight = mesh_of("data", "seq", shape=(4, 2))
    for mesh in (straight, mesh_of("data", "seq", shape=(4, 2), order=[5, 0, 3, 6, 1, 7, 2, 4])):
        for spec in (P("data", "seq"), P("data"), P(("seq", "data")), P(None, "seq"), P()):
            sharding = NamedSharding(mesh, spec)
            assert rows_of_process(sharding, global_batch=BATCH, world=world) == tuple(range(BATCH))
            made = to_jax(batch, range(BATCH), sharding, BATCH)
            assert_is_the_batch(made)
            assert made["tokens"].sharding == sharding
            assert made["text"] is batch["text"]
    assert to_jax(batch, range(BATCH), (straight, ()), BATCH)["label"].is_fully_replicated
    halves = to_jax(columns_of(range(BATCH)), range(BATCH), (straight, "data"), BATCH)["tokens"]
    assert {shard.data.shape for shard in halves.addressable_shards} == {(2, 4)}
    assert jax.jit(jnp.sum)(halves) == columns_of(range(BATCH))["tokens"].sum()


@pytest.mark.world(n=1, devices=8)
def test_what_does_not_add_up_is_refused(world: allranks.World) -> None:
    """Every refusal says which rows, sizes or columns."""
    mesh = mesh_of("data", "model", shape=(4, 2))
    cut = NamedSharding(mesh, P("data"))

    for where, size, says in (
        (cut, 10, r"10 rows does not divide over 4 parts .* Use 1, 2, 5, 10 of them, or .* 8 or 12"),
        (mesh, 8, r"axes data, model\. Name those"),
        ("data", 8, "a sharding of the batch, found a builtins.str"),
    ):
        with pytest.raises(DataError, match=says):
            rows_of_process(where, global_batch=size, world=world)
    for rows, size, says in (
        (range(4), 8, r"column 'tokens' is \(8, 4\), and 4 rows"),
        (range(8), 16, "no row here for rows 8-15"),
        (range(8), 4, "need rows 0-3 of a batch of 4; there is rows 4-7 here, which no device"),
        ([1, 0, *range(2, 8)], 8, "another order of rows"),
    ):
        with pytest.raises(BatchMismatch, match=says):
            to_jax(columns_of(range(8)), rows, cut, size)
    wide = {"id": np.arange(8) + 2**40}
    with pytest.raises(DataError, match="column 'id' is int64 with values from 1099511627776 to"):
        to_jax(wide, range(8), cut, 8)
    assert to_jax({"id": np.arange(8)}, range(8), cut, 8)["id"].dtype == np.int32


def test_batches_are_under_way_before_they_are_needed() -> None:
    """Two of them by a thread while one is computed on, in order, to the last; an error comes where it is due."""
    placed = [threading.Event() for _ in range(5)]

    def place(number: int) -> int:
        assert threading.current_thread().name.startswith("allranks-transfer")
        placed[number].set()
        if number == 4:
            raise OSError("number 4")
        return 10 * number

    batches = place_ahead(range(5), place, batches_ahead=2)
    for taken in range(4):
        assert next(batches) == (taken, 10 * taken)
        assert placed[min(taken + 2, 4)].wait(30)  # the loop has not asked for that one
    with pytest.raises(OSError, match="number 4"):
        next(batches)
    assert not any(thread.name.startswith("allranks-transfer") for thread in threading.enumerate())


def test_a_loop_that_stops_ends_the_thread_that_copies() -> None:
    data = Dataset.sequence([{"x": number} for number in range(100)], compare=False).batch(4)
    loader = data.loader(rank=0, size=1)
    for arrays in loader.to_jax(NamedSharding(Mesh(np.array(jax.devices()[:1]), ("data",)), P("data"))):
        assert arrays["x"].shape == (4,)
        break
    assert loader.step == 1
    del arrays
    assert not any(thread.name.startswith("allranks-transfer") for thread in threading.enumerate())


def test_the_thread_that_copies_has_the_width_of_numbers_of_the_loop() -> None:
    """JAX keeps it for each thread, in a context."""
    cut = NamedSharding(Mesh(np.array(jax.devices()[:1]), ("data",)), P("data"))
    data = Dataset.sequence([{"x": (1 << 40) + number} for number in range(8)], compare=False).batch(4)
    with jax.enable_x64(True):
        found = [arrays["x"] for arrays in data.loader(rank=0, size=1).to_jax(cut)]
    assert {one.dtype.name for one in found} == {"int64"}
    assert min(int(np.asarray(one).min()) for one in found) >= 1 << 40


@pytest.mark.world(n=4, devices=2)
def test_a_loader_gives_a_mesh_what_one_process_reads(world: allranks.World, shared_tmp_path: Path) -> None:
    """Two ways data x four ways model: global batches are those of one process, the ledger counts every sample once.

    Also after a restore of an older step: there the state goes back with the weights.
    """
    cut = NamedSharding(mesh_of("data", "model", shape=(2, 4)), P("data"))
    data = Dataset.sequence([{"x": 3 * number} for number in range(101)], seed=7).batch(BATCH)
    expected = [batch["x"].tolist() for batch in data.loader(rank=0, size=1)]
    assert len(expected) == 13

    with allranks.Checkpointer(shared_tmp_path, world, every=5, on_sigterm=False) as ckpt:
        loader = data.loader(world, rows=cut)
        assert loader.rows == tuple(range(4) if world.rank < 2 else range(4, 8))
        first = []
        for batch in islice(loader, 8):
            first.append(everywhere(batch.to_jax(cut)["x"]).tolist())
            ckpt.maybe_save(loader.step, {"w": np.zeros(2)}, extra={"data": loader.state()})
        assert first == expected[:8]
        restored = ckpt.restore({"w": np.zeros(2)})
        assert restored is not None
        assert restored[1] == 5
    again, rest = data.loader(world, rows=cut, state=restored.extra["data"]), []
    for number, arrays in enumerate(again.to_jax(cut, ahead=2)):
        rest.append(everywhere(arrays["x"]).tolist())
        assert again.step == 6 + number, "what is under way is not taken"
    assert rest == expected[5:]
    assert again.epoch == 1


@pytest.mark.world(n=4, devices=2)
def test_ranks_of_one_model_hold_the_same_rows(world: allranks.World) -> None:
    """Two ways data x four ways model: ranks 0-1 hold rows 0-3. By rank, everyone brings others, and nobody notices."""
    cut = NamedSharding(mesh_of("data", "model", shape=(2, 4)), P("data"))
    wrong = np.full(4, world.rank)
    silent = jax.make_array_from_process_local_data(cut, wrong, (BATCH,))
    assert [shard.data[0] for shard in silent.addressable_shards] == [world.rank] * 2
    assert len(set(world.all_gather(int(silent.addressable_data(0)[0])))) == 4, "two halves, four opinions"

    rows = rows_of_process(cut, global_batch=BATCH, world=world)
    assert rows == tuple(range(4) if world.rank < 2 else range(4, 8))
    shares = start_on_all_ranks(world, {}, rows, global_batch=BATCH)
    assert (shares.counted, shares.shared) == (rows if world.rank in (0, 2) else (), rows)
    batch = columns_of(rows)
    compare_shared_rows(world, rows, row_hashes(batch))
    assert_is_the_batch(to_jax(batch, rows, cut, BATCH))

    by_rank = rows_of_rank(world.rank, world.size, BATCH)
    with pytest.raises(BatchMismatch, match=r"this process' devices need rows \d-\d of a batch of 8; there is no"):
        to_jax(columns_of(by_rank), by_rank, cut, BATCH)
    batch["tokens"][3, 1] += world.rank == 3
    with pytest.raises(BatchMismatch, match="ranks 2-3 brought different bytes for row 7, which they hold together"):
        compare_shared_rows(world, rows, row_hashes(batch))


@pytest.mark.world(n=2, devices=2)
def test_a_permuted_mesh_gives_each_process_its_devices_rows(world: allranks.World) -> None:
    """Reversed, the first process holds the last rows; interleaved, each holds two pieces."""
    expected = {(3, 2, 1, 0): [(4, 5, 6, 7), (0, 1, 2, 3)], (0, 2, 1, 3): [(0, 1, 4, 5), (2, 3, 6, 7)]}
    for order, rows in expected.items():
        mesh = mesh_of("data", order=list(order))
        mine = rows_of_process(mesh, global_batch=BATCH, world=world)
        assert mine == rows[world.rank]
        assert start_on_all_ranks(world, {}, mine, global_batch=BATCH).counted == mine
        assert_is_the_batch(to_jax(columns_of(mine), mine, mesh, BATCH))
        by_rank = rows_of_rank(world.rank, 2, BATCH)
        cut, local = NamedSharding(mesh, P("data")), columns_of(by_rank)["label"]
        believed = jax.make_array_from_process_local_data(cut, local, (BATCH,))
        assert sorted(everywhere(believed).tolist()) == list(range(BATCH)), "no row is lost, and no error is raised"
        assert everywhere(believed).tolist() != list(range(BATCH)), "but other rows than on other meshes"
        with pytest.raises(BatchMismatch, match="there is no row here for"):
            to_jax(columns_of(by_rank), by_rank, mesh, BATCH)


@pytest.mark.world(n=2, devices=2)
def test_uneven_processes_bring_as_many_rows_as_they_have_devices(world: allranks.World) -> None:
    """Three devices over two processes: four rows of one and two of the other, and a ledger that counts each once."""
    mesh = Mesh(np.array(jax.devices()[:3]), "data")
    cut = NamedSharding(mesh, P("data"))
    rows = rows_of_process(cut, global_batch=6, world=world)
    assert rows == ((0, 1, 2, 3), (4, 5))[world.rank]
    ids = plan_of(100, 6, streams=3).row_ids(start_on_all_ranks(world, {}, rows, global_batch=6).counted, 0, 1)
    assert len({one for rank in world.all_gather(ids.ravel().tolist()) for one in rank}) == 6
    assert_is_the_batch(to_jax(columns_of(rows), rows, cut, 6), 6)

    even, local = mesh_of("data"), columns_of(range(4) if world.rank == 0 else range(2))
    believed = jax.make_array_from_process_local_data(NamedSharding(even, P("data")), local["label"])
    assert believed.shape == ((8,), (4,))[world.rank], "one array, two shapes, no error"
    if world.rank == 1:
        with pytest.raises(BatchMismatch, match=r"column 'tokens' is \(2, 4\), and 4 rows of the batch are held"):
            to_jax(local, range(4, 8), even, BATCH)

    lonely = Mesh(np.array(jax.devices()[:2]), "data")
    if world.rank == 1:
        with pytest.raises(DataError, match="rank 1: no device of this process is in"):
            rows_of_process(lonely, global_batch=6, world=world)
