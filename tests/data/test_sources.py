"""Every source: what it says of itself, and what it gives."""

from __future__ import annotations

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import KINDS, NEEDS, Corpus

from allranks.data.base import Reader
from allranks.data.index import DatasetIndex
from allranks.data.sources.detect import open_source
from allranks.errors import DataError

ALL = [pytest.param(kind, marks=pytest.mark.needs(*NEEDS.get(kind, ()))) for kind in KINDS]


@pytest.fixture
def corpus(request: pytest.FixtureRequest, tmp_path: Path) -> Corpus:
    return KINDS[request.param](tmp_path)


def read(reader: Reader, index: DatasetIndex, block: int, rows: list[int] | None = None) -> list[Any]:
    wanted = np.arange(index.skip[block], index.skip[block] + index.rows[block]) if rows is None else np.array(rows)
    return reader.read(block).take(wanted.astype(np.int64))


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, dict) and any(isinstance(value, np.ndarray) for value in expected.values()):
        kinds = all(found[name].dtype == value.dtype for name, value in expected.items())
        return kinds and all(np.array_equal(found[name], value) for name, value in expected.items())
    return bool(np.all(found == expected)) and type(found) is type(expected)


@pytest.mark.parametrize("corpus", ALL, indirect=True)
def test_all_samples_are_there_in_their_order(corpus: Corpus) -> None:
    """By ids, through every block, once; the index survives its encoding."""
    source, expected = corpus
    index = DatasetIndex.decode(source.index().encode())
    reader = source.open(index)
    assert index.samples == len(expected)
    found = [sample for block in range(len(index)) for sample in read(reader, index, block)]
    assert len(found) == len(expected)
    assert all(map(same, found, expected))


@pytest.mark.parametrize("corpus", ALL, indirect=True)
def test_any_rows_of_any_block_come_as_they_are_asked_for(corpus: Corpus) -> None:
    """In any order, twice if asked twice, from a copy that went through pickle, of a part of the index too."""
    source, expected = pickle.loads(pickle.dumps(corpus))
    whole = source.index()
    index = whole.slice(3, len(expected) - 2) if len(expected) > 8 else whole
    reader = source.open(index)
    first = 3 if len(expected) > 8 else 0
    draw = np.random.default_rng(0)
    for block in draw.permutation(len(index)).tolist():
        rows = draw.integers(index.skip[block], index.skip[block] + index.rows[block], 9)
        found = read(reader, index, block, rows.tolist())
        ids = index.first_ids[block] + rows - index.skip[block] + first
        assert all(same(sample, expected[number]) for sample, number in zip(found, ids.tolist(), strict=True))


@pytest.mark.parametrize("corpus", ALL, indirect=True)
def test_threads_share_a_reader(corpus: Corpus) -> None:
    source, expected = corpus
    index = source.index()
    reader = source.open(index)
    with ThreadPoolExecutor(8) as pool:
        blocks = list(pool.map(lambda block: read(reader, index, block), range(len(index))))
    assert all(map(same, (sample for block in blocks for sample in block), expected))


@pytest.mark.parametrize("corpus", ALL, indirect=True)
def test_the_index_is_the_same_again(corpus: Corpus) -> None:
    """From the cache, and built anew; ``where`` names the source."""
    source, _ = corpus
    assert source.index().digest == source.index().digest
    assert source.where


@pytest.mark.parametrize(
    ("corpus", "most"),
    [
        ("jsonl", 1.0),
        ("jsonl.gz", 1.0),
        ("text", 1.0),
        ("parquet", 1.5),  # a footer is long beside rows that are few
        ("arrow", 1.5),
        ("webdataset", 1.0),
        ("folder", 1.0),
    ],
    indirect=["corpus"],
)
@pytest.mark.needs("orjson", "pyarrow")
def test_bytes_are_counted_and_read_once(corpus: Corpus, most: float) -> None:
    source, _ = corpus
    index = source.index()
    reader = source.open(index)
    for block in range(len(index)):
        reader.read(block)
    there = sum(file.nbytes for file in index.files)
    assert 0.9 * there <= reader.bytes_read <= most * there


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    source, _ = KINDS["text"](tmp_path)
    seen: list[tuple[int, int]] = []
    source.index(progress=lambda done, total: seen.append((done, total)))
    total = sum(path.stat().st_size for path in tmp_path.glob("*.txt"))
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(DataError, match=r"no source 'csv'. There are jsonl, text, parquet"):
        open_source("csv", "data/*.csv")


def test_a_missing_library_is_named() -> None:
    """With the command that installs it."""
    code = (
        "import sys; sys.modules['orjson'] = None\n"
        "from allranks.data.sources.detect import open_source\n"
        "from allranks.errors import DataError\n"
        "try: open_source('jsonl', 'x.jsonl')\n"
        "except DataError as error: print(error)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.strip() == 'jsonl needs orjson, which is not installed. Install it: pip install "allranks[data]"'
