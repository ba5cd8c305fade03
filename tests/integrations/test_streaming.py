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
    return importlib.import_module("datasets").load_dataset(**named(folder))


def named(folder: Path) -> dict[str, Any]:
    files, cache = f"{folder}/*.parquet", f"{folder}/cache"
    return {"path": "parquet", "data_files": files, "split": "train", "streaming": True, "cache_dir": cache}


def uneven(world: allranks.World, tmp_path: Path) -> Path:
    """Return a folder of all ranks with files of so many rows."""
    folder = Path(str(world.broadcast(str(tmp_path))))
    if world.is_main:
        pa, pq = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
        for number, many in enumerate(FILES):
            rows = pa.table({"x": [1000 * number + one for one in range(many)]})
            pq.write_table(rows, folder / f"{number}.parquet", row_group_size=20)
    world.barrier()
    return folder


@pytest.mark.needs("torch")
@pytest.mark.world(n=3, backend="torch")
def test_uneven_files_make_equal_steps(world: allranks.World, tmp_path: Path) -> None:
    """Six uneven files on three ranks: theirs end at three different steps; ours at one, each sample once, resumed."""
    folder = uneven(world, tmp_path)
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


@pytest.mark.needs("torch")
@pytest.mark.world(n=3, backend="torch")
def test_by_their_name_the_same_files_are_read_with_all_guarantees(world: allranks.World, tmp_path: Path) -> None:
    """As many steps as a third of the rows take, known before; each row once, also when resumed."""
    folder = uneven(world, tmp_path)
    options = named(folder)
    data = allranks.Dataset.huggingface(options.pop("path"), **options).batch(12)
    loader = data.loader(world)
    assert len(loader) == -(-sum(FILES) // 12)
    begun = [batch["x"][batch.mask].tolist() for batch in islice(loader, 20)]
    state = loader.state().gathered()
    rest = [batch["x"][batch.mask].tolist() for batch in data.loader(world, state=state)]
    assert len(rest) == len(loader) - 20
    everyone: Any = world.all_gather(begun + rest)
    found = sorted(x for one in everyone for step in one for x in step)
    assert found == [1000 * number + one for number, many in enumerate(FILES) for one in range(many)]
