"""Files of records that are damaged at random are read, or refused with one error that names a file; nothing else."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from record_files import write_array_records, write_tfrecord

from allranks.data.sources.detect import open_source
from allranks.errors import DataError

pytestmark = pytest.mark.needs("pyarrow", "zstandard", "array_record")
WRITTEN = Path(__file__).parent / "written"


def copy_of(name: str) -> Callable[[Path], object]:
    return lambda folder: shutil.copytree(WRITTEN / name, folder, dirs_exist_ok=True)


def write_arrays(folder: Path) -> None:
    write_array_records(
        folder / "a.array_record", [bytes([one]) * 7 * one for one in range(200)], "group_size:9,zstd:3"
    )


KINDS: dict[str, tuple[str, dict[str, Any], Callable[[Path], object]]] = {
    "mds": ("mds", {}, copy_of("mds")),
    "mds, zstd": ("mds", {}, copy_of("mds_zstd")),
    "mds, gzip": ("mds", {}, copy_of("mds_gz")),
    "litdata": ("litdata", {}, copy_of("litdata")),
    "litdata, Arrow": ("litdata", {}, copy_of("litdata_arrow")),
    "litdata, zstd": ("litdata", {}, copy_of("litdata_zstd")),
    "litdata, tokens": ("tokens", {"length": 16}, copy_of("litdata_tokens")),
    "TFRecord": ("tfrecord", {}, lambda folder: write_tfrecord(folder / "a.tfrecord", range(40))),
    "ArrayRecord": ("array_record", {}, write_arrays),
}


def damage(data: bytearray, dice: random.Random) -> None:
    """Change, cut, overwrite or insert bytes, at one to eight places."""
    for _ in range(dice.choice((1, 1, 2, 8))):
        at = dice.randrange(len(data) + 1)
        how = dice.randrange(4)
        if how == 0 and at < len(data):
            data[at] ^= 1 << dice.randrange(8)
        elif how == 1:
            del data[at:]
        elif how == 2:
            data[at : at + 4] = dice.choice((b"\xff" * 4, b"\0" * 4, dice.randbytes(4)))
        else:
            data[at:at] = dice.randbytes(dice.randrange(9))


def read_all(kind: str, folder: Path, **options: Any) -> None:
    source = open_source(kind, folder, **options)
    index = source.index()
    reader = source.open(index)
    for block in range(len(index)):
        assert len(reader.read(block).take(np.arange(index.rows[block]))) == index.rows[block]


@pytest.mark.parametrize("count", [12, pytest.param(3000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", KINDS)
def test_damaged_files_are_read_or_named(name: str, count: int, tmp_path: Path) -> None:
    kind, options, write = KINDS[name]
    dice, found = random.Random(count), Counter[str]()
    (tmp_path / "good").mkdir()
    write(tmp_path / "good")
    for number in range(count):
        folder = tmp_path / "bad"
        shutil.copytree(tmp_path / "good", folder)
        path = dice.choice(sorted(folder.iterdir()))
        data = bytearray(path.read_bytes())
        damage(data, dice)
        path.write_bytes(data)
        try:
            read_all(kind, folder, cache=str(tmp_path / f"cache-{number}"), **options)
            found["read"] += 1
        except DataError as error:
            found["refused" if str(folder) in str(error) else f"nameless: {error}"] += 1
        shutil.rmtree(folder)
        shutil.rmtree(tmp_path / f"cache-{number}", ignore_errors=True)
    print(name, dict(found))
    assert found["refused"] > count // 10
    assert found.keys() <= {"read", "refused"}
