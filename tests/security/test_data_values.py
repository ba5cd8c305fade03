"""Data that would give other samples, or other numbers, in silence: each is exact, or an error that names it."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allranks import Dataset, SimulatedWorld, World, shard
from allranks.data.index import DatasetIndex
from allranks.data.sources.cache import _encode_index
from allranks.digest import digest, show
from allranks.errors import DataError, Mismatch

for needed in ("orjson", "pyarrow", "zstandard"):
    pytest.importorskip(needed)

import data_fuzz  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from allranks.data.sources.detect import open_source  # noqa: E402

BEYOND = [1 << 63, (1 << 64) - 1, 1 << 64, -(1 << 63) - 1, 10**30]


def write(path: Path, values: list[Any]) -> Path:
    path.write_text("".join(json.dumps({"n": value}) + "\n" for value in values))
    return path


def batches(data: Dataset, size: int = 2) -> list[Any]:
    return list(data.batch(size, streams=1).loader(rank=0, size=1))


def test_numpy_alone_changes_the_numbers() -> None:
    """Without us: one wide integer turns its neighbours into floats, which are other numbers."""
    column = np.array([1 << 63, (1 << 53) + 1, -1])
    assert column.dtype == np.float64
    assert int(column[1]) != (1 << 53) + 1


@pytest.mark.parametrize("beyond", BEYOND)
@pytest.mark.parametrize("place", range(4))
def test_an_integer_that_int64_does_not_hold_is_named(tmp_path: Path, beyond: int, place: int) -> None:
    """Alone in its batch and beside others; no batch gets another dtype."""
    values = [5, (1 << 53) + 1, -1, 7]
    values[place] = beyond
    data = Dataset.jsonl(write(tmp_path / "a.jsonl", values), shuffle=False)
    with pytest.raises(DataError, match=rf"column 'n' of sample {place} is {beyond}") as caught:
        batches(data)
    assert caught.value.sample == place
    exact = [int(one) for batch in batches(data.map(lambda one: {"n": str(one["n"])})) for one in batch["n"]]
    assert exact == values


def test_integers_that_fit_are_int64_in_every_batch(tmp_path: Path) -> None:
    values = [5, -(1 << 63), (1 << 63) - 1, (1 << 53) + 1]
    made = batches(Dataset.jsonl(write(tmp_path / "a.jsonl", values), shuffle=False))
    assert {batch["n"].dtype for batch in made} == {np.dtype(np.int64)}
    assert np.concatenate([batch["n"] for batch in made]).tolist() == values


def test_unsigned_integers_stay_exact_with_a_map(tmp_path: Path) -> None:
    """As the message says; of Parquet, too, whose numbers are Python's."""
    values = [0, 1 << 63, (1 << 64) - 1, 3]
    pq.write_table(pa.table({"n": pa.array(values, pa.uint64())}), tmp_path / "a.parquet")
    data = Dataset.parquet(tmp_path / "a.parquet", shuffle=False)
    with pytest.raises(DataError, match=r"np\.uint64\(value\) holds integers below 2\*\*64"):
        batches(data)
    made = batches(data.map(lambda one: {"n": np.uint64(one["n"])}))
    assert {batch["n"].dtype for batch in made} == {np.dtype(np.uint64)}
    assert [int(one) for batch in made for one in batch["n"]] == values


@pytest.mark.parametrize("inside", ['{{"a": [{0}]}}', '{{"a": {{"b": {0}, "c": 0.12345678901234567890123}}}}', "{0}"])
def test_wide_integers_are_exact_at_any_depth(tmp_path: Path, inside: str) -> None:
    """Floats with as many digits stay floats, and other lines of the block are as before."""
    texts = [inside.format(value) for value in [*BEYOND, 1, 10**18]]
    (tmp_path / "a.jsonl").write_text("".join(f"{text}\n" for text in texts))
    data = Dataset.jsonl(tmp_path / "a.jsonl", shuffle=False).map(lambda one: {"text": json.dumps(one)})
    found = [text for batch in batches(data, 7) for text in batch["text"]]
    assert found == [json.dumps(json.loads(text)) for text in texts]


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.uint32])
def test_a_token_that_int32_does_not_hold_is_named(dtype: type) -> None:
    rows = [{"tokens": np.array([1, 2, 3 if row != 4 else (1 << 32) - 1], dtype)} for row in range(8)]
    data = Dataset.sequence(rows, shuffle=False, compare=False).pack(4).batch(2, streams=1)
    with pytest.raises(DataError, match="sample 4 has the token 4294967295"):
        list(data.loader(rank=0, size=1))


def test_texts_of_numpy_are_a_list_whatever_their_lengths() -> None:
    made = batches(Dataset.sequence([{"t": np.str_("x" * row)} for row in range(1, 5)], shuffle=False, compare=False))
    assert [type(batch["t"]) for batch in made] == [list, list]


# ---- a cached index that somebody else has written

Change = Callable[[DatasetIndex], DatasetIndex]


def without(index: DatasetIndex, kept: Any) -> DatasetIndex:
    names = ("file", "begin", "end", "skip", "rows", "check")
    return replace(index, **{name: getattr(index, name)[kept] for name in names})


def fewer_rows(index: DatasetIndex, block: int) -> DatasetIndex:
    rows, block = index.rows.copy(), min(block, len(index) - 1)
    rows[block] = max(1, rows[block] - 3)
    return replace(index, rows=rows)


FORGED: dict[str, Change] = {
    "first block left out": lambda index: without(index, slice(1, None)),
    "middle block left out": lambda index: without(index, np.arange(len(index)) != 1),
    "last block left out": lambda index: without(index, slice(None, -1)),
    "every block left out": lambda index: without(index, slice(0, 0)),
    "fewer rows in the first block": lambda index: fewer_rows(index, 0),
    "fewer rows in a block": lambda index: fewer_rows(index, 1),
    "a block twice": lambda index: without(index, np.array([0, 0, *range(1, len(index))])),
    "rows without end": lambda index: replace(index, rows=index.rows + (1 << 61)),
    "a block behind the end": lambda index: replace(index, end=index.end + (1 << 60)),
    "negative": lambda index: replace(index, begin=index.begin - (1 << 40)),
    "an empty file": lambda index: replace(without(index, slice(0, 0)), files=(replace(index.files[0], nbytes=0),)),
    "a file twice": lambda index: replace(
        index,
        files=2 * index.files,
        file=np.repeat(np.arange(2, dtype=np.int32), len(index)),
        **{name: np.tile(getattr(index, name), 2) for name in ("begin", "end", "skip", "rows", "check")},
    ),
    "another file": lambda index: replace(index, file=index.file + 1),
}
FORMATS = [corpus for corpus in data_fuzz.corpora() if corpus[0] != "folder"]
ONE_EACH = list({f"{corpus[0]} {corpus[2]}": corpus for corpus in FORMATS}.values())


PARAMS = [
    pytest.param(
        one, marks=() if any(one is other for other in ONE_EACH) else pytest.mark.soak, id=f"{one[0]}-{one[2]}"
    )
    for one in FORMATS
]


@pytest.fixture
def shared_readers() -> Iterator[None]:
    with data_fuzz.shared_readers():
        yield


def samples_of(source: Any) -> list[str]:
    index = source.index()
    reader = source.open(index)
    found = []
    for block in range(len(index)):
        rows = reader.read(block)
        if hasattr(rows, "positions_of"):
            rows.positions_of(np.arange(int(index.rows[block])))  # as the loader does
        found += [repr(one) for one in rows.take(np.arange(index.rows[block]))]
    return found


# Of a small file with a table, every forged index is seen to be one before the file is read.
REBUILT = ("mds", "litdata")


@pytest.mark.parametrize("corpus", PARAMS)
@pytest.mark.usefixtures("shared_readers")
def test_a_forged_index_leaves_no_sample_out(corpus: data_fuzz.Corpus, tmp_path: Path) -> None:
    """With a right seal: the file is indexed again, or an error names it. Never fewer samples, or the same twice."""
    kind, options, name, data = corpus
    path = data_fuzz.write_file(name, data, tmp_path)
    os.utime(path, (1, 1))
    source = open_source(kind, path, **options, cache=str(tmp_path / "cache"))
    expected = samples_of(source)
    (cached,) = (tmp_path / "cache").iterdir()
    index, files = source.index(), source.list_files()
    caught: list[str] = []
    for change in FORGED.values():
        cached.write_bytes(_encode_index(change(index), files))
        try:
            found = samples_of(source)
        except DataError as error:
            found, caught = expected, [*caught, str(error)]
        assert found == expected
    assert caught or kind in REBUILT
    assert all(path.name in error for error in caught)


def test_a_forged_cache_is_rebuilt_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is no index at all, under a right seal."""
    path = write(tmp_path / "a.jsonl", list(range(9)))
    os.utime(path, (1, 1))
    source = open_source("jsonl", path, cache=str(tmp_path / "cache"))
    expected = samples_of(source)
    (cached,) = (tmp_path / "cache").iterdir()
    heads = (b"", b"[]", b"{}", b'{"cache": 1, "files": [1]}', b"[" * 100_000, b'{"cache": 1, "files": []}')
    for body in (head + b'\n{"format": 1}' for head in heads):
        cached.write_bytes(show(digest(body)).encode() + b"\n" + body)
        caplog.clear()
        assert samples_of(source) == expected
        assert "It is built anew" in caplog.text


def test_a_first_line_of_three_bytes_is_no_mark(tmp_path: Path) -> None:
    """A block may begin at byte 3 without a byte-order mark; but nothing else may be before the first block."""
    path = tmp_path / "a.txt"
    path.write_text("ab\ncd\nef\n")
    os.utime(path, (1, 1))
    source = open_source("text", path, block_bytes=1, cache=str(tmp_path / "cache"))
    assert samples_of(source) == ["'ab'", "'cd'", "'ef'"]
    (cached,) = (tmp_path / "cache").iterdir()
    cached.write_bytes(_encode_index(without(source.index(), slice(1, None)), source.list_files()))
    with pytest.raises(DataError, match="a byte-order mark before byte 3"):
        samples_of(source)


def test_take_and_skip_of_a_block_are_no_change(tmp_path: Path) -> None:
    """Of a cut file, a block may have more lines than the data set."""
    data = Dataset.jsonl(write(tmp_path / "a.jsonl", list(range(40))), shuffle=False, block_bytes=100).skip(3).take(30)
    found = [one for batch in batches(data, 6) for one in batch["n"].tolist()]
    assert sorted(found) == list(range(3, 33))


def of_ranks(values: list[Any]) -> Any:
    """Run a rank for each value, which is that of the first sample of the rank; return the outcome."""

    def take(world: World) -> Any:
        samples = [{"n": value, "text": "x" * at} for at, value in enumerate(values)] * 4
        data = Dataset.sequence(samples, shuffle=False).batch(len(values), streams=1)
        taken = [batch["n"] for batch in data.loader(world)]
        return taken[0]

    return SimulatedWorld(len(values)).run(take)


@pytest.mark.parametrize("values", [[1, 2.5, 3], [1.5, 2.5, 3], [1, True, 3], [1, "3", 3], [1, np.float32(3), 3]])
def test_ranks_whose_first_samples_have_other_types_are_named(values: list[Any]) -> None:
    """Each rank alone would make all its batches of the type of its first sample."""
    outcome = of_ranks(values)
    assert set(outcome.errors) == {0, 1, 2}
    odd = next(at for at in range(3) if [type(one) for one in values].count(type(values[at])) == 1)
    for error in outcome.errors.values():
        assert isinstance(error, Mismatch)
        assert error.ranks == (odd,)
        assert "the first batches differ: " in str(error)
        assert "column 'n'" in str(error)
        assert "column 'text'" not in str(error)


@pytest.mark.parametrize("values", [[1, 2], [1.5, 2.5], ["a", "b"], [None, "b"], [np.float32(1), np.float32(2)]])
def test_ranks_whose_first_samples_have_one_type_go_on(values: list[Any]) -> None:
    assert len(of_ranks(values).values()) == 2


@pytest.mark.parametrize("value", ["x", "Pad", "", None, 1, ["pad"], ("drop",)])
def test_a_choice_that_does_not_exist_is_named(value: Any) -> None:
    """It would act as one of the others."""
    data = Dataset.sequence([1, 2, 3])
    calls: dict[str, Callable[[], Any]] = {
        "tail": lambda: data.batch(2, tail=value),
        "stop": lambda: Dataset.mix([(data, 1.0)], stop=value),
        "on_corrupt": lambda: Dataset.sequence([1], on_corrupt=value),
        "method": lambda: data.pack(4, method=value),
        "long": lambda: data.pack(4, long=value),
    }
    for name, call in calls.items():
        with pytest.raises(DataError, match=f"^{name}="):
            call()
    for samples in ([1, 2, 3], iter([1, 2, 3])):
        with pytest.raises(DataError, match=r"^tail=.*: expected 'pad' or 'drop'\."):
            shard(samples, tail=value)


def shard_of(path: Path, names: list[str]) -> Path:
    with tarfile.open(path, "w") as tar:
        for number, name in enumerate(names):
            member = tarfile.TarInfo(name)
            member.size = 1
            tar.addfile(member, io.BytesIO(b"%d" % number))
    return path


@pytest.mark.parametrize("names", [["b.cls", "b.cls"], ["b.cls", "b.txt", "b.cls"], ["b.__key__"]])
@pytest.mark.parametrize("decode", [False, True])
def test_two_files_of_a_sample_with_one_extension_are_a_bad_sample(
    tmp_path: Path, names: list[str], decode: bool
) -> None:
    """The second would replace the first, or the key. The other samples can be used."""
    path = shard_of(tmp_path / "a.tar", ["a.cls", *names, "c.cls"])
    first, odd, last = samples_of(open_source("webdataset", path, decode=decode, cache=str(tmp_path / "cache")))
    assert "'__key__': 'a'" in first
    assert "'__key__': 'c'" in last
    extension = names[-1].partition(".")[2]
    assert odd.startswith("BadSample(")
    assert f"{names[-1]} is the second {extension!r} of its sample" in odd
