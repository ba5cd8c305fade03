"""A streaming datasets.IterableDataset on real ranks: what goes wrong without us, and how it goes with us."""

from __future__ import annotations

import importlib
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import allranks

FILES = (100, 40, 130, 90, 77, 5)


# Nothing is imported at the top that starts a thread, as Arrow does: then no rank of any test could be forked.
def streaming(folder: Path) -> Any:
    datasets = importlib.import_module("datasets")
    return datasets.load_dataset(
        "parquet", data_files=f"{folder}/*.parquet", split="train", streaming=True, cache_dir=f"{folder}/cache"
    )


@pytest.mark.needs("torch")
@pytest.mark.world(n=3, backend="torch")
def test_uneven_files_make_equal_steps(world: allranks.World, tmp_path: Path) -> None:
    """Six uneven files on three ranks: theirs end at three different steps; ours at one, each sample once, resumed."""
    folder = Path(str(world.broadcast(str(tmp_path))))
    if world.is_main:
        pa, pq = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
        for number, many in enumerate(FILES):
            pq.write_table(pa.table({"x": [1000 * number + one for one in range(many)]}), folder / f"{number}.parquet")
    world.barrier()

    split = importlib.import_module("datasets.distributed").split_dataset_by_node
    theirs = sum(1 for _ in split(streaming(folder), rank=world.rank, world_size=world.size))
    assert len(set(world.all_gather(theirs))) == 3

    mine = allranks.shard(streaming(folder), world)
    begun = list(islice(mine, 50))
    state = mine.state().gathered()
    rest = list(allranks.shard(streaming(folder), world, state=state))
    taken = [None if one is None else one["x"] for one in begun + rest]
    everyone: Any = world.all_gather(taken)
    assert [len(one) for one in everyone] == [130 + 90] * 3  # as many as the rank of the largest two files has
    found = sorted(x for one in everyone for x in one if x is not None)
    assert found == [1000 * number + one for number, many in enumerate(FILES) for one in range(many)]
