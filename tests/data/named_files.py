"""Files of every format that a named data set may have, and what its library streams of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from allranks.data.index import DatasetIndex
from allranks.data.sources.named import named

SIZES = {"b": 40, "a": 7, "c": 93}  # not in the order of their names


def table(name: str, many: int) -> Any:
    return pa.table(
        {
            "x": pa.array([ord(name) * 1000 + row for row in range(many)], pa.int64()),
            "text": [f"{name}{row} →" for row in range(many)],
            "numbers": pa.array([[row] * (row % 3) for row in range(many)], pa.list_(pa.int32())),
            "more": pa.array([{"score": row / 2, "tags": ["t"]} for row in range(many)]),
            "none": pa.nulls(many) if name == "c" else pa.array([None, "one"] * many, pa.string()).slice(0, many),
        }
    )


def write_parquet(folder: Path, name: str, many: int) -> Path:
    path = folder / f"{name}.parquet"
    pq.write_table(table(name, many), path, row_group_size=11)
    return path


def write_arrow(folder: Path, name: str, many: int) -> Path:
    one, path = table(name, many).drop_columns("none"), folder / f"{name}.arrow"
    with (pa.ipc.new_file if name == "a" else pa.ipc.new_stream)(path, one.schema) as file:
        file.write_table(one, max_chunksize=11)
    return path


def lines(name: str, many: int) -> bytes:
    """What JSON leaves open: columns that some lines lack, integers among floats, times, an empty line."""
    said = []
    for row in range(many):
        one = {"x": row, "name": name, "when": "2026-11-22T05:00:00", "number": 1 if row else 0.5}
        one |= {"nested": {"a": [row], **({"b": row / 2} if row % 2 else {})}} if row != 3 else {}
        said.append(json.dumps(one) + "\n" * (1 + (row == 5)))
    return "".join(said).encode()


def write_json(folder: Path, name: str, many: int) -> Path:
    path = folder / f"{name}.jsonl"
    path.write_bytes(lines(name, many))
    return path


def write_json_gz(folder: Path, name: str, many: int) -> Path:
    path = folder / f"{name}.jsonl.gz"
    path.write_bytes(gzip.compress(lines(name, many)))
    return path


def write_text(folder: Path, name: str, many: int) -> Path:
    path = folder / f"{name}.txt"
    path.write_bytes("\r\n".join(f"{name} {row} ä" * (row % 4) for row in range(many)).encode())
    return path


WRITE = {"parquet": write_parquet, "arrow": write_arrow, "json": write_json, "text": write_text}


def plain(value: Any) -> Any:
    """Return a sample without NumPy, as datasets has it."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


def samples(path: str, **options: Any) -> list[Any]:
    source = named(path, **options)
    index = DatasetIndex.decode(source.index().encode())
    reader = named(path, **options).open(index)  # another rank, which has the index and asks nobody
    return [one for block in range(len(index)) for one in reader.read(block).take(np.arange(index.rows[block]))]


def streamed(path: str, split: str | None = "train", **options: Any) -> list[Any]:
    return list(datasets.load_dataset(path, split=split, streaming=True, **options))
