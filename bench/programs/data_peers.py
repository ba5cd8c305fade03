"""The ways to read the corpus, by name: ours, the peers' and the plain loop. All but ours are shuffled as the peer can.

A way opens a rank's part and yields its batches in the form that comes natural to it. Ranks are opened one after the
other in one process, told who they are as each peer wants it; none of them talks to another while it reads.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

BATCH, SEED = 96, 0
Sample = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank's place: its corpus, who it is, how many rows a global batch has, and where it goes on (None: begins)."""

    folder: Path
    rank: int
    size: int
    state: Any = None
    batch: int = BATCH

    @property
    def rows(self) -> int:
        return self.batch // self.size

    def files(self, form: str) -> list[str]:
        return sorted(map(str, (self.folder / form).glob(f"*.{form}")))


@dataclass(frozen=True, slots=True)
class Opened:
    """A rank's part: its batches, the documents' ids in one of them, and the state behind the last one taken."""

    batches: Iterator[Any]
    ids: Callable[[Any], Sequence[int]]
    state: Callable[[], Any] | None = None


Way = Callable[[Rank], Opened]


def way(name: str) -> Way:
    """Return a way by its name: ``ours-jsonl``, ``hf-parquet``, ``grain-elastic``..."""
    modules = {"ours": "data_ours", "mosaic": "data_mosaic"}
    made: Way = importlib.import_module(modules.get(name.partition("-")[0], "data_peers")).WAYS[name]
    return made


def grouped(samples: Iterable[Any], rows: int) -> Iterator[list[Any]]:
    samples = iter(samples)
    while batch := list(islice(samples, rows)):
        yield batch


def of_samples(batch: Sequence[Sample]) -> list[int]:
    return [int(one["id"]) for one in batch]


def of_columns(batch: Any) -> Sequence[int]:
    return [int(number) for number in batch["id"]]


def of_lines(batch: Sequence[bytes]) -> list[int]:
    import orjson

    return [orjson.loads(line)["id"] for line in batch]


def plain_jsonl(at: Rank) -> Opened:
    """The limit: every rank-th file, line by line."""
    import orjson

    def samples() -> Iterator[Any]:
        for path in at.files("jsonl")[at.rank :: at.size]:
            with open(path, "rb") as file:
                yield from map(orjson.loads, file)

    return Opened(grouped(samples(), at.rows), of_samples)


def plain_parquet(at: Rank) -> Opened:
    """The limit: every rank-th file, row group by row group."""
    import pyarrow.parquet as pq

    def samples() -> Iterator[Any]:
        for path in at.files("parquet")[at.rank :: at.size]:
            file = pq.ParquetFile(path)
            for number in range(file.num_row_groups):
                columns = file.read_row_group(number).to_pydict()
                yield from ({"id": i, "text": text} for i, text in zip(columns["id"], columns["text"], strict=True))

    return Opened(grouped(samples(), at.rows), of_samples)


def _hf_streaming(form: str) -> Way:
    def opened(at: Rank) -> Opened:
        import datasets
        from datasets.distributed import split_dataset_by_node

        load = {"jsonl": "json", "parquet": "parquet"}[form]
        whole = datasets.load_dataset(load, data_files=at.files(form), split="train", streaming=True)
        part = split_dataset_by_node(whole.shuffle(seed=SEED, buffer_size=10_000), at.rank, at.size)
        if at.state is not None:
            part.load_state_dict(at.state)
        return Opened(grouped(part, at.rows), of_samples, part.state_dict)

    return opened


def hf_map(at: Rank) -> Opened:
    """Arrow files in memory maps, torch's sampler and loader; the state is how many samples were taken."""
    import datasets
    import torch.utils.data as torch_data

    data = datasets.load_from_disk(str(at.folder / "arrow"))
    sampler = torch_data.DistributedSampler(data, at.size, at.rank, shuffle=True, seed=SEED)
    taken = at.state or 0
    order = list(sampler)[taken:]
    loader = torch_data.DataLoader(data, at.rows, sampler=order)

    def batches() -> Iterator[Any]:
        nonlocal taken
        for batch in loader:
            taken += len(batch["id"])
            yield batch

    return Opened(batches(), of_columns, lambda: taken)


def _hf_torchdata(at: Rank) -> Opened:
    """The same with torchdata's stateful loader."""
    import datasets
    from torchdata.stateful_dataloader import StatefulDataLoader
    from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

    data = datasets.load_from_disk(str(at.folder / "arrow"))
    sampler = StatefulDistributedSampler(data, at.size, at.rank, shuffle=True, seed=SEED)
    loader = StatefulDataLoader(data, at.rows, sampler=sampler)
    if at.state is not None:
        loader.load_state_dict(at.state)
    return Opened(iter(loader), of_columns, loader.state_dict)


def _grain() -> Any:
    import absl.flags
    import grain.python

    absl.flags.FLAGS.mark_as_parsed()  # or its processes refuse to start
    return grain


def _grain_opened(data: Any, at: Rank, ids: Callable[[Any], Sequence[int]]) -> Opened:
    iterator = iter(data)
    if at.state is not None:
        iterator.set_state(at.state)
    return Opened(iterator, ids, iterator.get_state)


def _grain_records(at: Rank) -> Any:
    import orjson

    grain = _grain()
    source = grain.python.ArrayRecordDataSource(at.files("arrayrecord"))
    return grain.MapDataset.source(source).shuffle(seed=SEED).map(orjson.loads)


def grain_elastic(at: Rank) -> Opened:
    from grain._src.core.sharding import ShardOptions
    from grain._src.python.dataset.elastic_iterator import ElasticIterator

    return _grain_opened(ElasticIterator(_grain_records(at), at.batch, ShardOptions(at.rank, at.size)), at, of_columns)


def grain_slice(at: Rank) -> Opened:
    part = _grain_records(at)[at.rank :: at.size].batch(at.rows, drop_remainder=False)
    return _grain_opened(part.to_iter_dataset(), at, of_columns)


def grain_parquet(at: Rank) -> Opened:
    grain = _grain()
    from grain.experimental import InterleaveIterDataset, ParquetIterDataset

    files = grain.MapDataset.source(at.files("parquet")[at.rank :: at.size]).shuffle(seed=SEED)
    data = InterleaveIterDataset(files.map(ParquetIterDataset), cycle_length=4)
    data = grain.experimental.WindowShuffleIterDataset(data, window_size=10_000, seed=SEED)
    return _grain_opened(data.batch(at.rows, drop_remainder=False), at, of_columns)


def litdata(at: Rank) -> Opened:
    os.environ.update(WORLD_SIZE=str(at.size), GLOBAL_RANK=str(at.rank))
    import litdata as ld

    data = ld.StreamingDataset(str(at.folder / "litdata"), shuffle=True, drop_last=False, seed=SEED)
    loader = ld.StreamingDataLoader(data, batch_size=at.rows)
    if at.state is not None:
        loader.load_state_dict(at.state)
    return Opened(iter(loader), of_columns, loader.state_dict)


def webdataset(at: Rank) -> Opened:
    os.environ.update(WORLD_SIZE=str(at.size), RANK=str(at.rank))
    import webdataset as wds

    data = wds.WebDataset(at.files("tar"), shardshuffle=16, nodesplitter=wds.split_by_node, seed=SEED)
    data = data.shuffle(10_000, seed=SEED).decode().map(lambda sample: sample["json"])
    return Opened(grouped(data, at.rows), of_samples)


def memory_map(at: Rank) -> Opened:
    """Megatron's way: the corpus in a memory map, a permutation of all samples, a global counter as the state."""
    import mmap

    import numpy as np
    import orjson

    ends = np.load(at.folder / "offsets.npy", mmap_mode="r")
    order = np.random.RandomState(SEED).permutation(len(ends) - 1)
    with open(at.folder / "all.jsonl", "rb") as file:
        memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    taken = at.state or 0

    def batches() -> Iterator[Any]:
        nonlocal taken
        while taken + at.batch <= len(order):
            mine = order[taken + at.rank * at.rows : taken + (at.rank + 1) * at.rows]
            taken += at.batch
            yield [orjson.loads(memory[ends[one] : ends[one + 1]]) for one in mine]

    return Opened(batches(), of_samples, lambda: taken)


# Where a state is a count of all ranks' samples: what it is called. So it can be made for any step.
COUNTERS = {"grain-elastic": "global_next_index", "mosaic": "sample_in_epoch"}

WAYS: dict[str, Way] = {
    "plain-jsonl": plain_jsonl,
    "plain-parquet": plain_parquet,
    "hf-jsonl": _hf_streaming("jsonl"),
    "hf-parquet": _hf_streaming("parquet"),
    "hf-map": hf_map,
    "hf-torchdata": _hf_torchdata,
    "grain-elastic": grain_elastic,
    "grain-slice": grain_slice,
    "grain-parquet": grain_parquet,
    "litdata": litdata,
    "webdataset": webdataset,
    "memory-map": memory_map,
}
