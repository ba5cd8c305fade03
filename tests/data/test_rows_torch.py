"""Rows of a DeviceMesh, and batches as tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh

import allranks
from allranks.data.dataset import Dataset
from allranks.data.detect import rows_of_process
from allranks.data.start import compare_shared_rows, start_on_all_ranks
from allranks.data.torch import to_torch
from allranks.errors import BatchMismatch, DataError
from allranks.world.detect import single_world


@pytest.mark.world(n=4, backend="torch")
def test_ranks_of_one_model_hold_the_rows_of_their_coordinate(world: allranks.World) -> None:
    """Two ways dp x two ways tp: by rank / world, the ranks of one model would train on different rows."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    half = tuple(range(4) if world.rank < 2 else range(4, 8))
    for where in ((mesh, "dp"), (mesh, ("dp",)), mesh["dp"]):
        assert rows_of_process(where, global_batch=8, world=world) == half
    assert rows_of_process((mesh, ("dp", "tp")), global_batch=8, world=world) == (2 * world.rank, 2 * world.rank + 1)
    swapped = (0, 2, 1, 3)[world.rank]
    assert rows_of_process((mesh, ("tp", "dp")), global_batch=8, world=world) == (2 * swapped, 2 * swapped + 1)
    assert rows_of_process((mesh, ()), global_batch=8, world=world) == tuple(range(8)), "no dimension cuts the batch"
    shares = start_on_all_ranks(world, {"seed": 0}, half, global_batch=8)
    assert (shares.counted, shares.shared) == (half if world.rank in (0, 2) else (), half)
    hashes = np.arange(4, dtype=np.uint64) + np.uint64(world.rank // 2)
    compare_shared_rows(world, half, hashes)
    with pytest.raises(BatchMismatch, match="ranks 0-1 brought different bytes for rows 0-3, which they hold together"):
        compare_shared_rows(world, half, hashes + np.uint64(10 * world.rank if world.rank < 2 else 0))

    for where, says in ((mesh, "2 dimensions, called dp, tp"), ((mesh, "fsdp"), r"2 .* dp, tp, and not \('fsdp',\)")):
        with pytest.raises(DataError, match=rf"rank {world.rank}: the mesh has {says}\. Name those"):
            rows_of_process(where, global_batch=8, world=world)
    with pytest.raises(DataError, match=r"9 rows does not divide over 2 parts of the mesh. Use 1, 3, 9"):
        rows_of_process((mesh, "dp"), global_batch=9, world=world)


def test_tensors_share_the_memory_of_their_columns() -> None:
    """What torch cannot share is copied, without a warning; text stays as it is."""
    batch = {
        "tokens": np.arange(6, dtype=np.int32).reshape(3, 2),
        "mask": np.ones(3, bool),
        "frozen": np.arange(3.0),
        "backwards": np.arange(3)[::-1],
        "text": np.array(["a", "b", "c"]),
    }
    batch["frozen"].flags.writeable = False
    made = to_torch(batch)
    assert [made[name].dtype for name in ("tokens", "mask", "frozen")] == [torch.int32, torch.bool, torch.float64]
    assert made["backwards"].tolist() == [2, 1, 0]
    assert made["text"] is batch["text"]
    batch["tokens"][0, 0] = 9
    assert made["tokens"].tolist()[0] == [9, 1]
    assert to_torch(batch, "meta")["tokens"].device.type == "meta"


@pytest.mark.parametrize("packed", [False, True])
def test_tensors_are_copied_ahead_and_counted_when_they_are_handed_out(packed: bool) -> None:
    """At every step the state is that of a loader without copies ahead, and the epoch is proven at its end."""
    draw = np.random.default_rng(0)
    documents = [np.arange(draw.integers(1, 30), dtype=np.int32) + number for number in range(200)]
    data = Dataset.sequence([{"tokens": one} if packed else {"x": one[0]} for one in documents])
    data = (data.pack(32) if packed else data).batch(4)
    plain, ahead = data.loader(single_world()), data.loader(single_world())
    name = "tokens" if packed else "x"
    for batch, tensors in zip(plain, ahead.to_torch("cpu", ahead=3), strict=True):
        assert tensors[name].tolist() == batch[name].tolist()
        assert tensors["mask"].tolist() == batch.mask.tolist()
        assert ahead.state().gathered() == plain.state().gathered()
    assert plain.epoch == ahead.epoch == 1
    with pytest.raises(DataError, match="ahead=-1"):
        ahead.to_torch(ahead=-1)
