"""Rows of Arrow tables: every kind of column, damage, columns that are not there."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allranks.data.base import BadSample, Source
from allranks.errors import DataChanged, DataError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from allranks.data.sources.arrow import arrow  # noqa: E402
from allranks.data.sources.columns import TableRows  # noqa: E402
from allranks.data.sources.huggingface import huggingface  # noqa: E402
from allranks.data.sources.parquet import parquet  # noqa: E402

DAY = datetime.date(2026, 11, 21)
COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "string": (pa.string(), ["a", "", "ü", "four"]),
    "string with null": (pa.string(), ["a", None, "ü", ""]),
    "large string": (pa.large_string(), ["a", None, "ü", ""]),
    "string view": (pa.string_view(), ["a", None, "ü", "x" * 40]),
    "binary": (pa.binary(), [b"\xff", b"", None, b"abc"]),
    "large binary": (pa.large_binary(), [b"\xff", b"", None, b"abc"]),
    "integer": (pa.int64(), [1, -2, 2**62 + 1, 0]),
    "integer with null": (pa.uint64(), [2**64 - 1, None, 2**53 + 1, 0]),
    "float": (pa.float32(), [0.5, None, -1.0, 2.0]),
    "boolean": (pa.bool_(), [True, None, False, True]),
    "null": (pa.null(), [None, None, None, None]),
    "date": (pa.date32(), [DAY, None, DAY, DAY]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a", None]),
    "struct": (pa.struct({"x": pa.int8()}), [{"x": 1}, {"x": None}, None, {"x": 4}]),
    "list of texts": (pa.list_(pa.string()), [["a"], [], None, ["b", "c"]]),
    "list with nulls": (pa.list_(pa.int64()), [[1, None], [], None, [2]]),
    "rectangle with nulls": (pa.list_(pa.int64(), 2), [[1, 2], None, [3, 4], [5, None]]),
}
ARRAYS: dict[str, tuple[Any, list[Any]]] = {
    "list": (pa.list_(pa.int32()), [[1, 2], [], [3], [4, 5, 6]]),
    "list with null": (pa.list_(pa.int32()), [[1, 2], None, [3], []]),
    "large list": (pa.large_list(pa.float64()), [[1.5], [], [2.5, 3.5], []]),
    "rectangle": (pa.list_(pa.int16(), 2), [[1, 2], [3, 4], [5, 6], [7, 8]]),
}
SIX = [3, 0, 2, 1, 1, 0]


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("cut", [False, True])
def test_a_column_gives_its_values(name: str, cut: bool) -> None:
    """As Arrow's to_pylist would, nulls as None; of a part of a longer column too, and of one in chunks."""
    kind, values = COLUMNS[name]
    column = pa.chunked_array([pa.array(values + values, kind).slice(4, 1), pa.array(values, kind).slice(1)])
    table = pa.table({"x": column if cut else pa.array(values * 3, kind).slice(4, 4)})
    found = TableRows(table, "here").take(np.array(SIX))
    assert found == [{"x": values[row]} for row in SIX]
    assert [type(one["x"]) for one in found] == [type(values[row]) for row in SIX]


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("cut", [False, True])
def test_lists_of_numbers_are_arrays(name: str, cut: bool) -> None:
    """Of their own memory: changing one changes no other."""
    kind, values = ARRAYS[name]
    column = pa.chunked_array([pa.array(values, kind).slice(0, 2), pa.array(values, kind).slice(2)])
    table = pa.table({"x": column if cut else pa.array(values * 3, kind).slice(4, 4), "id": [0, 1, 2, 3]})
    rows = TableRows(table, "here")
    for _ in range(2):
        for row, one in zip(SIX, rows.take(np.array(SIX)), strict=True):
            assert one["id"] == row
            assert (one["x"] is None) == (values[row] is None)
            if one["x"] is not None:
                assert one["x"].dtype == np.dtype(kind.value_type.to_pandas_dtype())
                assert one["x"].tolist() == values[row]
                one["x"][:] = 99


def test_text_that_is_no_utf8_is_bad() -> None:
    table = pa.table({"x": pa.array([b"a", b"\xff", b"c"]).view(pa.string())})
    one, bad, three = TableRows(table, "file, row group 7").take(np.arange(3))
    assert (one, three) == ({"x": "a"}, {"x": "c"})
    assert isinstance(bad, BadSample)
    assert bad.why.startswith("file, row group 7: row 1 has text that is no UTF-8")


def samples(source: Source) -> list[Any]:
    index = source.index()
    reader = source.open(index)
    return [one for block in range(len(index)) for one in reader.read(block).take(np.arange(index.rows[block]))]


def wide(path: Path, *, checksums: bool = False) -> None:
    """Three row groups of ten rows; a column in the middle is much larger than the others."""
    table = pa.table({"a": list(range(30)), "big": ["x" * 20_000 + str(row) for row in range(30)], "c": ["c"] * 30})
    pq.write_table(
        table, path, row_group_size=10, compression="none", use_dictionary=False, write_page_checksum=checksums
    )


def test_only_the_columns_that_are_wanted_are_read(tmp_path: Path) -> None:
    wide(tmp_path / "a.parquet")
    source = parquet(tmp_path, columns=["c", "a"])
    index = source.index()
    reader = source.open(index)
    assert reader.read(1).take(np.array([0])) == [{"c": "c", "a": 10}]
    assert reader.bytes_read < 20_000
    assert samples(parquet(tmp_path, columns=["a"])) == [{"a": row} for row in range(30)]


@pytest.mark.parametrize("make", [parquet, arrow])
def test_a_column_that_is_not_there_is_named(tmp_path: Path, make: Any) -> None:
    wide(tmp_path / "a.parquet")
    with pa.ipc.new_file(tmp_path / "a.arrow", pa.schema({"a": pa.int8()})) as file:
        file.write(pa.record_batch({"a": pa.array([1], pa.int8())}))
    with pytest.raises(DataError, match=r"a\.\w+ has no column 'nope'. It has 'a'"):
        samples(make(tmp_path, columns=["a", "nope"]))


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + 64] = bytes(range(100, 164))
    path.write_bytes(data)


def test_a_corrupt_row_group_is_named_or_masked(tmp_path: Path) -> None:
    """Its rows are Bad and all others are what they were; the bytes in the message are those of the row group."""
    path = tmp_path / "a.parquet"
    wide(path, checksums=True)
    group = pq.read_metadata(path).row_group(1)
    damage(path, group.column(1).data_page_offset + 1000)
    begin, end = group.column(0).data_page_offset, group.column(2).data_page_offset
    with pytest.raises(
        DataError, match=rf"a.parquet: row group 1 \(10 rows, bytes {begin:,} to .*on_corrupt="
    ) as error:
        samples(parquet(path))
    assert error.value.path == str(path)
    found = samples(parquet(path, on_corrupt="mask"))
    assert [row for row, one in enumerate(found) if isinstance(one, BadSample)] == list(range(10, 20))
    assert [one["a"] for one in found if not isinstance(one, BadSample)] == [*range(10), *range(20, 30)]
    assert end > begin


def test_a_page_header_that_is_damaged_is_found_without_checksums(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    wide(path)
    damage(path, pq.read_metadata(path).row_group(2).column(0).data_page_offset)
    assert sum(isinstance(one, BadSample) for one in samples(parquet(path, on_corrupt="mask"))) == 10


@pytest.mark.parametrize("keep", [3, 100, -9, -1])
def test_a_file_that_is_cut_off_is_named(tmp_path: Path, keep: int) -> None:
    wide(tmp_path / "a.parquet")
    data = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(data[:keep])
    with pytest.raises(DataError, match=r"a.parquet \(.* bytes\) is not a complete Parquet file"):
        parquet(tmp_path, on_corrupt="mask").index()


def test_a_footer_that_is_another_is_a_changed_file(tmp_path: Path) -> None:
    """Of the same size: the same data with the columns' names changed."""
    wide(tmp_path / "a.parquet")
    source = parquet(tmp_path)
    index = source.index()
    data = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(data.replace(b"big", b"pig"))
    with pytest.raises(DataChanged, match=r"a.parquet has changed since it was indexed: expected a footer"):
        source.open(index).read(0)


def test_a_footer_may_be_long(tmp_path: Path) -> None:
    """Longer than what is read at first."""
    table = pa.table({f"column {number}": [number] for number in range(1500)})
    pq.write_table(table, tmp_path / "a.parquet")
    assert samples(parquet(tmp_path)) == table.to_pylist()


def test_bad_values_of_on_corrupt_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected 'raise' or 'mask'"):
        parquet(tmp_path, on_corrupt="skip")  # type: ignore[arg-type]


@pytest.mark.parametrize("keep", [5, 40, 300, -300])
def test_an_arrow_file_that_is_cut_off_is_named(tmp_path: Path, keep: int) -> None:
    with pa.ipc.new_stream(tmp_path / "a.arrow", pa.schema({"a": pa.int64()})) as file:
        file.write(pa.record_batch({"a": list(range(1000))}))
    (tmp_path / "a.arrow").write_bytes((tmp_path / "a.arrow").read_bytes()[:keep])
    with pytest.raises(DataError, match=r"a.arrow .* is not a complete Arrow file or stream: at byte"):
        arrow(tmp_path).index()


def test_dictionaries_in_arrow_files_are_refused(tmp_path: Path) -> None:
    batch = pa.record_batch({"a": pa.array(["x", "y"]).dictionary_encode()})
    with pa.ipc.new_file(tmp_path / "a.arrow", batch.schema) as file:
        file.write(batch)
    with pytest.raises(DataError, match=r"a.arrow has columns with dictionaries.*Write them as plain columns"):
        arrow(tmp_path).index()


def test_compressed_batches_are_read(tmp_path: Path) -> None:
    batch = pa.record_batch({"a": ["x" * 1000] * 50, "n": [[1, 2]] * 50})
    with pa.ipc.new_file(
        tmp_path / "a.arrow", batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as file:
        file.write(batch)
    assert samples(arrow(tmp_path, columns=["a"])) == [{"a": "x" * 1000}] * 50


@pytest.mark.needs("datasets")
def test_other_objects_of_datasets_are_told_what_to_use() -> None:
    import datasets

    one = datasets.Dataset.from_dict({"a": [1, 2]})
    with pytest.raises(DataError, match=r"can only be iterated.*a name, streaming=True"):
        huggingface(one.to_iterable_dataset())
    with pytest.raises(DataError, match=r"several data sets. Choose one: dataset\['train'\]"):
        huggingface(datasets.DatasetDict(train=one))
    with pytest.raises(DataError, match=r"found builtins.list. Use the source 'sequence'"):
        huggingface([1, 2])
    other = datasets.Dataset.from_dict({"a": [1, 3]})
    with pytest.raises(DataChanged, match="fingerprint is"):
        huggingface(one).open(huggingface(other).index())
